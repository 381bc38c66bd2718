// Arena memory of one candidate: allocated in order from a chunk of the thread, and freed all at once.
#ifndef WMSCHED_ARENA_H_
#define WMSCHED_ARENA_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <vector>

namespace wmsched {

class Arena {
 public:
  // A thread's own; `mine_` spares each allocation the check of whether it is made.
  static Arena& Mine() {
    if (mine_ == nullptr) {
      thread_local Arena arena;
      mine_ = &arena;
    }
    return *mine_;
  }

  // While it lives, containers of its thread allocate from the chunk; destroy them before it.
  class Scope {
   public:
    Scope() { Mine().used_ = 0, Mine().open_ = true; }
    ~Scope() { Mine().open_ = false; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

  void* Take(size_t bytes) {
    bytes = (bytes + 15) & ~size_t(15);
    if (!open_ || used_ + bytes > kBytes) return ::operator new(bytes);
    if (chunk_ == nullptr) chunk_.reset(new char[kBytes]);
    void* taken = chunk_.get() + used_;
    used_ += bytes;
    return taken;
  }

  void Give(void* memory) {
    char* at = static_cast<char*>(memory);
    if (chunk_ == nullptr || at < chunk_.get() || at >= chunk_.get() + kBytes) ::operator delete(memory);
  }

 private:
  static constexpr size_t kBytes = size_t(1) << 20;
  // "initial-exec": an offset from a register, where the default calls a function at each use.
  static inline thread_local Arena* mine_ __attribute__((tls_model("initial-exec"))) = nullptr;
  std::unique_ptr<char[]> chunk_;
  size_t used_ = 0;
  bool open_ = false;
};

template <typename T>
struct FromArena {
  using value_type = T;
  FromArena() = default;
  template <typename U>
  FromArena(const FromArena<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(Arena::Mine().Take(count * sizeof(T))); }
  void deallocate(T* memory, size_t) { Arena::Mine().Give(memory); }
  template <typename U>
  bool operator==(const FromArena<U>&) const {
    return true;
  }
  template <typename U>
  bool operator!=(const FromArena<U>&) const {
    return false;
  }
};

template <typename T>
using Vector = std::vector<T, FromArena<T>>;
template <typename T>
using Deque = std::deque<T, FromArena<T>>;
template <typename T>
using Set = std::set<T, std::less<T>, FromArena<T>>;
using String = std::basic_string<char, std::char_traits<char>, FromArena<char>>;

}  // namespace wmsched

#endif  // WMSCHED_ARENA_H_
