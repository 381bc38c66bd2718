// Made by `python -m wmsched.features.table --header wmsched/metaschedule/native/columns_enum.h`; change the table, not this file.
#ifndef WMSCHED_COLUMNS_ENUM_H_
#define WMSCHED_COLUMNS_ENUM_H_

namespace wmsched {

// The columns that are computed for each candidate, with the unit of each; in the table's order.
enum Column {
  k_count_AN,  // steps
  k_count_FU,  // steps
  k_count_PR,  // steps
  k_count_RE,  // steps
  k_count_SP,  // steps
  k_count_SA,  // steps
  k_count_CA,  // steps
  k_count_CI,  // steps
  k_count_CHR,  // steps
  k_count_CHW,  // steps
  k_count_RF,  // steps
  k_count_ann_unroll,  // loops
  k_count_ann_vectorize,  // loops
  k_count_ann_parallel,  // loops
  k_count_ann_vthread,  // loops
  k_count_ann_bind,  // loops
  k_steps,  // steps
  k_stages,  // stages
  k_inlined,  // stages
  k_roots,  // stages
  k_attached,  // stages
  k_cache_stages,  // stages
  k_rfactor,  // stages
  k_parallel_max,  // log2(1 + iterations)
  k_parallel_balance,  // share
  k_parallel_waves,  // log2(1 + iterations)
  k_serial_root_share,  // share
  k_unroll_main,  // log2(1 + steps)
  k_unroll_max,  // log2(1 + steps)
  k_unrolled_body,  // log2(1 + statements)
  k_unroll_saturates,  // 0 or 1
  k_main_vector,  // log2(1 + lanes)
  k_main_vector_last_axis,  // 0 or 1
  k_main_vector_read0,  // code
  k_main_vector_read1,  // code
  k_main_vector_full,  // 0 or 1
  k_main_loops,  // loops
  k_main_attached,  // 0 or 1
  k_main_inner_spatial,  // log2(1 + iterations)
  k_main_registers,  // log2(1 + vector registers)
  k_main_reduce_inner,  // log2(1 + iterations)
  k_main_extent_0,  // log2(1 + iterations)
  k_main_extent_1,  // log2(1 + iterations)
  k_main_extent_2,  // log2(1 + iterations)
  k_main_extent_3,  // log2(1 + iterations)
  k_main_extent_4,  // log2(1 + iterations)
  k_main_extent_5,  // log2(1 + iterations)
  k_main_extent_6,  // log2(1 + iterations)
  k_main_extent_7,  // log2(1 + iterations)
  k_main_reduction_0,  // 0 or 1
  k_main_reduction_1,  // 0 or 1
  k_main_reduction_2,  // 0 or 1
  k_main_reduction_3,  // 0 or 1
  k_fit_iterations_l1,  // log2(1 + iterations)
  k_fit_iterations_l2,  // log2(1 + iterations)
  k_fit_iterations_l3,  // log2(1 + iterations)
  k_traffic_l1,  // log2(1 + cache lines)
  k_traffic_l2,  // log2(1 + cache lines)
  k_traffic_l3,  // log2(1 + cache lines)
  k_traffic_per_iteration_l1,  // log2(bytes / iteration)
  k_traffic_per_iteration_l2,  // log2(bytes / iteration)
  k_traffic_per_iteration_l3,  // log2(bytes / iteration)
  k_register_loads_per_iteration,  // ratio
  k_consumer_vector,  // log2(1 + lanes)
  k_consumer_tile,  // log2(1 + iterations)
  k_consumer_inner,  // log2(1 + iterations)
  k_consumer_contiguous,  // 0 or 1
  k_helper_roots,  // stages
  k_helper_attached,  // stages
  k_helper_recompute,  // log2(1 + iterations)
  k_helper_vector_share,  // share
  k_vector_stage_share,  // share
  k_split_0,  // log2(1 + iterations)
  k_split_1,  // log2(1 + iterations)
  k_split_2,  // log2(1 + iterations)
  k_split_3,  // log2(1 + iterations)
  k_split_4,  // log2(1 + iterations)
  k_split_5,  // log2(1 + iterations)
  k_split_6,  // log2(1 + iterations)
  k_split_7,  // log2(1 + iterations)
  k_tile_per_core,  // log2(1 + iterations)
  k_accumulators,  // log2(1 + vector registers)
  k_accumulator_reuse,  // log2(1 + iterations)
  k_block_loads,  // log2(1 + loads)
  k_block_loads_per_fma,  // log2(loads / multiply)
  k_block_gathers,  // log2(1 + loads)
  k_set_conflict_max,  // log2(1 + cache lines)
  k_set_conflict_sum,  // log2(1 + cache lines)
  k_pages_max,  // log2(1 + pages)
  k_reduce_stride_0,  // log2(1 + bytes), or -1
  k_reduce_stride_1,  // log2(1 + bytes), or -1
  k_spatial_stride_0,  // log2(1 + bytes), or -1
  k_spatial_stride_1,  // log2(1 + bytes), or -1
  k_vector_waste,  // lanes / lanes in use
  k_body_loads_per_fma,  // log2(loads / multiply)
  k_body_gathers_per_fma,  // log2(loads / multiply)
  k_body_stores_per_fma,  // log2(stores / multiply)
  k_body_held,  // log2(1 + vector registers)
  k_parallel_slowdown,  // log2(ratio)
  k_trace_known,  // 0 or 1
  k_trace_blocks,  // blocks
  k_trace_decomposed,  // blocks
  k_trace_decomposed_inside,  // log2(1 + iterations)
  k_trace_decomposed_copies,  // log2(1 + iterations)
  k_trace_layout,  // instructions
  k_trace_reindex,  // instructions
  k_trace_pipeline,  // 0 or 1
  k_trace_tensorized,  // instructions
  k_trace_tensorize_volume,  // log2(1 + iterations)
  k_trace_intrinsics,  // intrinsics
  k_gpu_threads,  // log2(1 + threads)
  k_gpu_blocks,  // log2(1 + thread blocks)
  k_gpu_vthreads,  // log2(1 + vthreads)
  k_gpu_waves,  // log2(1 + waves)
  k_gpu_warps,  // log2(1 + warps)
  k_gpu_warp_full,  // share
  k_gpu_thread_work,  // log2(1 + iterations)
  k_gpu_shared_bytes,  // log2(1 + bytes)
  k_gpu_shared_share,  // fraction of the limit
  k_gpu_local_elements,  // log2(1 + elements)
  k_gpu_reduce_steps,  // log2(1 + iterations)
  k_gpu_fetch_vector,  // elements
  k_gpu_fetch_rounds,  // log2(1 + iterations)
  k_gpu_flops_per_byte,  // log2(operations / byte)
  kColumns
};

inline constexpr const char* kColumnNames[kColumns] = {
    "count_AN",
    "count_FU",
    "count_PR",
    "count_RE",
    "count_SP",
    "count_SA",
    "count_CA",
    "count_CI",
    "count_CHR",
    "count_CHW",
    "count_RF",
    "count_ann_unroll",
    "count_ann_vectorize",
    "count_ann_parallel",
    "count_ann_vthread",
    "count_ann_bind",
    "steps",
    "stages",
    "inlined",
    "roots",
    "attached",
    "cache_stages",
    "rfactor",
    "parallel_max",
    "parallel_balance",
    "parallel_waves",
    "serial_root_share",
    "unroll_main",
    "unroll_max",
    "unrolled_body",
    "unroll_saturates",
    "main_vector",
    "main_vector_last_axis",
    "main_vector_read0",
    "main_vector_read1",
    "main_vector_full",
    "main_loops",
    "main_attached",
    "main_inner_spatial",
    "main_registers",
    "main_reduce_inner",
    "main_extent_0",
    "main_extent_1",
    "main_extent_2",
    "main_extent_3",
    "main_extent_4",
    "main_extent_5",
    "main_extent_6",
    "main_extent_7",
    "main_reduction_0",
    "main_reduction_1",
    "main_reduction_2",
    "main_reduction_3",
    "fit_iterations_l1",
    "fit_iterations_l2",
    "fit_iterations_l3",
    "traffic_l1",
    "traffic_l2",
    "traffic_l3",
    "traffic_per_iteration_l1",
    "traffic_per_iteration_l2",
    "traffic_per_iteration_l3",
    "register_loads_per_iteration",
    "consumer_vector",
    "consumer_tile",
    "consumer_inner",
    "consumer_contiguous",
    "helper_roots",
    "helper_attached",
    "helper_recompute",
    "helper_vector_share",
    "vector_stage_share",
    "split_0",
    "split_1",
    "split_2",
    "split_3",
    "split_4",
    "split_5",
    "split_6",
    "split_7",
    "tile_per_core",
    "accumulators",
    "accumulator_reuse",
    "block_loads",
    "block_loads_per_fma",
    "block_gathers",
    "set_conflict_max",
    "set_conflict_sum",
    "pages_max",
    "reduce_stride_0",
    "reduce_stride_1",
    "spatial_stride_0",
    "spatial_stride_1",
    "vector_waste",
    "body_loads_per_fma",
    "body_gathers_per_fma",
    "body_stores_per_fma",
    "body_held",
    "parallel_slowdown",
    "trace_known",
    "trace_blocks",
    "trace_decomposed",
    "trace_decomposed_inside",
    "trace_decomposed_copies",
    "trace_layout",
    "trace_reindex",
    "trace_pipeline",
    "trace_tensorized",
    "trace_tensorize_volume",
    "trace_intrinsics",
    "gpu_threads",
    "gpu_blocks",
    "gpu_vthreads",
    "gpu_waves",
    "gpu_warps",
    "gpu_warp_full",
    "gpu_thread_work",
    "gpu_shared_bytes",
    "gpu_shared_share",
    "gpu_local_elements",
    "gpu_reduce_steps",
    "gpu_fetch_vector",
    "gpu_fetch_rounds",
    "gpu_flops_per_byte",
};

}  // namespace wmsched

#endif  // WMSCHED_COLUMNS_ENUM_H_
