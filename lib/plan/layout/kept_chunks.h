// Which of the chunks that may be on disk stay in memory. lib/plan/offload decides how many they
// are while a job runs. Pure.
#pragma once

#include "plan/layout/state_chunk.h"

namespace dslaunch::plan {

// Leaves parameters in memory as far as the config allows (parameter_numel_in_memory), those that
// are trained first: they are written, too. The rank that has most of a chunk counts, so that all
// ranks choose the same.
void keep_parameters(StateChunks& chunks, const StateChunkOptions& options);

// Fills keep_order and keeps its first chunks where the placement is adaptive: those that are
// updated spread over the step, frozen ones last.
void keep_adaptive_chunks(StateChunks& chunks, const StateChunkOptions& options);

}  // namespace dslaunch::plan
