// Margins of boosted trees for many rows at once, equal to XGBoost's to the last bit.
//
// A split compares a column with one of its few hundred thresholds, so a row becomes bytes first: how many of a
// column's thresholds are at or below its value. A tree then is a sequence of selections between bytes, one a split,
// for 128 rows each, which ends with the number of each row's leaf. Splits of columns that are the same in all rows, as
// those of the operation and of the machine are in a search, are decided once a call.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define WMSCHED_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WMSCHED_CLONES
#endif

namespace {

constexpr int kBlock = 128;         // rows of one selection
constexpr int kMaxCuts = 254;       // thresholds of a segment; 255 stands for a missing value that goes right
constexpr int kMaxLeaves = 256;     // of a tree, whose number is a byte
constexpr int64_t kRowsOfAThread = 256;  // at least

// Up to `kMaxCuts` neighbouring thresholds of a column.
struct Segment {
  int32_t column;
  int32_t steps;            // of a binary search in `cuts`
  std::vector<float> cuts;  // ascending, filled up to 2^steps - 1 with NaN, which no value reaches
};

// A split by a segment's byte, which goes left where that is at most `bin`; `input` is twice the segment's number, plus
// one where a missing value goes right. A leaf has no input.
struct Node {
  int32_t input, left, right;
  uint8_t bin;
  uint8_t leaf;
};

struct Tree {
  std::vector<Node> nodes;
  std::vector<float> leaves;
};

struct Forest {
  int64_t columns;
  std::vector<Segment> segments;
  std::vector<std::vector<Tree>> members;
  std::vector<float> bases;
};

// out = input <= bin ? left : right, by numbers of slots.
struct Selection {
  uint16_t input;
  uint16_t left, right;
  uint8_t bin;
};

// What is left of a tree where some columns are known: selections into the slots from `kMaxLeaves` on, of which the last
// is the result; with none of them, one leaf for all rows.
struct Rest {
  size_t first, last;
  int leaf;
  const float* leaves;
};

struct Program {
  std::vector<Selection> selections;
  std::vector<std::vector<Rest>> members;
  std::vector<int32_t> inputs;  // which are read: numbers as of `Node`
  int slots = kMaxLeaves;
};

inline uint8_t BinOf(const Segment& segment, float value, bool right) {
  if (std::isnan(value)) return right ? 255 : 0;
  int at = 0;
  for (int step = 1 << segment.steps >> 1; step > 0; step >>= 1) at += segment.cuts[at + step - 1] <= value ? step : 0;
  return uint8_t(at);
}

class Pruning {
 public:
  Pruning(const Forest& forest, const std::vector<char>& same, const float* row) : forest_(forest) {
    known_.assign(2 * forest.segments.size(), -1);
    number_.assign(2 * forest.segments.size(), -1);
    for (size_t k = 0; k < forest.segments.size(); ++k) {
      const Segment& segment = forest.segments[k];
      if (!same[segment.column]) continue;
      for (int right = 0; right < 2; ++right) known_[2 * k + right] = BinOf(segment, row[segment.column], right != 0);
    }
  }

  Program Run() {
    for (const std::vector<Tree>& trees : forest_.members) {
      program_.members.emplace_back();
      for (const Tree& tree : trees) {
        slot_ = kMaxLeaves;
        size_t first = program_.selections.size();
        int result = Visit(tree, 0);
        program_.members.back().push_back({first, program_.selections.size(), result, tree.leaves.data()});
        program_.slots = std::max(program_.slots, slot_);
      }
    }
    return std::move(program_);
  }

 private:
  // The slot of a subtree's result.
  int Visit(const Tree& tree, int at) {
    const Node* node = &tree.nodes[at];
    while (node->input >= 0 && known_[node->input] >= 0)
      node = &tree.nodes[known_[node->input] <= node->bin ? node->left : node->right];
    if (node->input < 0) return node->leaf;
    int left = Visit(tree, node->left), right = Visit(tree, node->right);
    int& input = number_[node->input];
    if (input < 0) {
      input = int(program_.inputs.size());
      program_.inputs.push_back(node->input);
    }
    program_.selections.push_back({uint16_t(input), uint16_t(left), uint16_t(right), node->bin});
    return slot_++;
  }

  const Forest& forest_;
  std::vector<int> known_;   // bytes of inputs that are the same in all rows; below 0: they differ
  std::vector<int> number_;  // of inputs in the program
  Program program_;
  int slot_ = kMaxLeaves;
};

// The bytes of one input for a block of rows.
WMSCHED_CLONES void Quantize(const float* rows, int64_t count, int64_t width, const Segment& segment, int right,
                             uint8_t* out) {
  float values[kBlock];
  int32_t at[kBlock];
  for (int k = 0; k < kBlock; ++k) {
    values[k] = k < count ? rows[k * width + segment.column] : 0.0f;
    at[k] = 0;
  }
  const float* cuts = segment.cuts.data();
  for (int step = 1 << segment.steps >> 1; step > 0; step >>= 1)
    for (int k = 0; k < kBlock; ++k) at[k] += cuts[at[k] + step - 1] <= values[k] ? step : 0;
  for (int k = 0; k < kBlock; ++k) out[k] = uint8_t(std::isnan(values[k]) ? 255 * right : at[k]);
}

WMSCHED_CLONES void Evaluate(const Selection* selections, const Rest* trees, size_t count, const uint8_t* inputs,
                             uint8_t* slots, float* sums) {
  float total[kBlock];
  std::memcpy(total, sums, sizeof total);
  for (size_t n = 0; n < count; ++n) {
    const Rest& tree = trees[n];
    const float* leaves = tree.leaves;
    if (tree.first == tree.last) {
      float leaf = leaves[tree.leaf];
      for (int k = 0; k < kBlock; ++k) total[k] += leaf;
      continue;
    }
    uint8_t* out = slots + size_t(kMaxLeaves) * kBlock;
    for (size_t s = tree.first; s < tree.last; ++s, out += kBlock) {
      const Selection& each = selections[s];
      const uint8_t* __restrict in = inputs + size_t(each.input) * kBlock;
      const uint8_t* __restrict left = slots + size_t(each.left) * kBlock;
      const uint8_t* __restrict right = slots + size_t(each.right) * kBlock;
      uint8_t* __restrict to = out;
      const uint8_t bin = each.bin;
      for (int k = 0; k < kBlock; ++k) to[k] = in[k] <= bin ? left[k] : right[k];
    }
    const uint8_t* result = out - kBlock;
    for (int k = 0; k < kBlock; ++k) total[k] += leaves[result[k]];
  }
  std::memcpy(sums, total, sizeof total);
}

// The margins of some rows: out [members, count], with `stride` between members.
void Fill(const Forest& forest, const Program& program, const float* rows, int64_t count, float* out, int64_t stride) {
  std::vector<uint8_t> inputs(program.inputs.size() * kBlock), slots(size_t(program.slots) * kBlock);
  for (int leaf = 0; leaf < kMaxLeaves; ++leaf) std::memset(slots.data() + size_t(leaf) * kBlock, leaf, kBlock);
  float sums[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    int64_t some = std::min<int64_t>(kBlock, count - at);
    for (size_t k = 0; k < program.inputs.size(); ++k) {
      int input = program.inputs[k];
      Quantize(rows + at * forest.columns, some, forest.columns, forest.segments[size_t(input / 2)], input % 2,
               inputs.data() + k * kBlock);
    }
    for (size_t m = 0; m < forest.members.size(); ++m) {
      std::fill(sums, sums + kBlock, forest.bases[m]);
      Evaluate(program.selections.data(), program.members[m].data(), program.members[m].size(), inputs.data(),
               slots.data(), sums);
      std::memcpy(out + int64_t(m) * stride + at, sums, size_t(some) * sizeof(float));
    }
  }
}

// Which columns have the same bits in all rows.
std::vector<char> Same(const float* rows, int64_t count, int64_t width) {
  std::vector<uint32_t> differ(size_t(width), 0), first(size_t(width), 0), now(size_t(width), 0);
  std::memcpy(first.data(), rows, size_t(width) * sizeof(float));
  for (int64_t n = 1; n < count; ++n) {
    std::memcpy(now.data(), rows + n * width, size_t(width) * sizeof(float));
    for (int64_t k = 0; k < width; ++k) differ[k] |= now[k] ^ first[k];
  }
  std::vector<char> same(static_cast<size_t>(width));
  for (int64_t k = 0; k < width; ++k) same[k] = differ[k] == 0;
  return same;
}

}  // namespace

extern "C" {

// A forest of `members` ensembles, whose trees' nodes lie one after the other: `trees` [members] are their numbers of
// trees, `nodes` [all trees] of nodes. `left` and `right` are numbers in the tree, below 0 for a leaf; `value` is a split's
// threshold or a leaf's margin. Null where a tree has too many leaves, or a node is out of its tree.
__attribute__((visibility("default"))) void* wmsched_forest(int64_t columns, int64_t members, const int64_t* trees,
                                                            const int64_t* nodes, const int32_t* left,
                                                            const int32_t* right, const int32_t* column,
                                                            const float* value, const uint8_t* missing_left,
                                                            const float* bases) {
  try {
    auto forest = std::make_unique<Forest>();
    forest->columns = columns;
    forest->bases.assign(bases, bases + members);
    int64_t all = 0, first = 0;
    for (int64_t m = 0; m < members; ++m) all += trees[m];
    int64_t total = 0;
    for (int64_t t = 0; t < all; ++t) total += nodes[t];
    std::vector<std::vector<float>> cuts(static_cast<size_t>(columns));
    for (int64_t n = 0; n < total; ++n) {
      if (left[n] < 0) continue;
      if (column[n] < 0 || column[n] >= columns || std::isnan(value[n])) return nullptr;
      cuts[size_t(column[n])].push_back(value[n]);
    }
    std::vector<int32_t> begin;  // number of each column's first segment
    for (int64_t c = 0; c < columns; ++c) {
      auto& own = cuts[size_t(c)];
      std::sort(own.begin(), own.end());
      own.erase(std::unique(own.begin(), own.end()), own.end());
      begin.push_back(int32_t(forest->segments.size()));
      for (size_t from = 0; from < own.size(); from += kMaxCuts) {
        Segment segment{int32_t(c), 0, {own.begin() + from, own.begin() + std::min(own.size(), from + kMaxCuts)}};
        while ((size_t(1) << segment.steps) - 1 < segment.cuts.size()) ++segment.steps;
        segment.cuts.resize((size_t(1) << segment.steps) - 1, std::numeric_limits<float>::quiet_NaN());
        forest->segments.push_back(std::move(segment));
      }
    }
    if (forest->segments.size() > size_t(std::numeric_limits<uint16_t>::max() / 2)) return nullptr;
    int64_t t = 0;
    for (int64_t m = 0; m < members; ++m) {
      forest->members.emplace_back();
      for (int64_t k = 0; k < trees[m]; ++k, first += nodes[t], ++t) {
        Tree tree;
        for (int64_t n = first; n < first + nodes[t]; ++n) {
          Node node{-1, left[n], right[n], 0, 0};
          if (left[n] < 0) {
            if (tree.leaves.size() >= size_t(kMaxLeaves)) return nullptr;
            node.leaf = uint8_t(tree.leaves.size());
            tree.leaves.push_back(value[n]);
          } else {
            int64_t own = n - first;  // children come after their parent, so no walk is endless
            if (left[n] <= own || right[n] <= own || left[n] >= nodes[t] || right[n] >= nodes[t]) return nullptr;
            const auto& all_cuts = cuts[size_t(column[n])];
            size_t place = size_t(std::lower_bound(all_cuts.begin(), all_cuts.end(), value[n]) - all_cuts.begin());
            node.input = 2 * (begin[size_t(column[n])] + int32_t(place / kMaxCuts)) + !missing_left[n];
            node.bin = uint8_t(place % kMaxCuts);
          }
          tree.nodes.push_back(node);
        }
        if (tree.nodes.empty()) return nullptr;
        forest->members.back().push_back(std::move(tree));
      }
    }
    return forest.release();
  } catch (const std::exception&) {
    return nullptr;
  }
}

__attribute__((visibility("default"))) void wmsched_forest_free(void* forest) { delete static_cast<Forest*>(forest); }

// Fill `out` [members, count] with the margins of `rows` [count, columns]. Whether it did.
__attribute__((visibility("default"))) int wmsched_forest_margins(const void* given, const float* rows, int64_t count,
                                                                  float* out, int64_t threads) {
  try {
    const Forest& forest = *static_cast<const Forest*>(given);
    if (count <= 0) return 1;
    Program program = Pruning(forest, Same(rows, count, forest.columns), rows).Run();
    int64_t shares = std::max<int64_t>(1, std::min(threads, count / kRowsOfAThread));
    int64_t each = (count + shares - 1) / shares;
    each = (each + kBlock - 1) / kBlock * kBlock;
    std::atomic<int> done{1};
    auto share = [&](int64_t k) {
      int64_t from = k * each, to = std::min(count, from + each);
      try {
        if (from < to) Fill(forest, program, rows + from * forest.columns, to - from, out + from, count);
      } catch (const std::exception&) {  // no memory
        done = 0;
      }
    };
    std::vector<std::thread> others;
    for (int64_t k = 1; k < shares; ++k) try {
        others.emplace_back(share, k);
      } catch (const std::system_error&) {  // the system refuses more threads
        share(k);
      }
    share(0);
    for (std::thread& other : others) other.join();
    return done;
  } catch (const std::exception&) {
    return 0;
  }
}

}  // extern "C"
