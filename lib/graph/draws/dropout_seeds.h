// Random numbers without a state: before every node that draws, the generator is seeded with
// hash(seed, step, micro batch, ordinal of the node, loop trip). Dropout is then the same for every
// number of segments and every schedule, with or without recompute, and after a resume. Ranks that
// are threads of one process share the CPU generator, so seeding and drawing hold one lock.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// The step and the micro batch that this thread is computing.
struct DrawKey {
    uint64_t seed = 0;
    int64_t step = 0;         // optimizer step, from 0
    int64_t micro_batch = 0;  // index in the global batch: micro_step * data_parallel_size +
                              // data_parallel_rank
    // The number of completed updates, on which compression depends (graph/compress). -1 stands for
    // any number after the last change of the compression.
    int64_t updates = -1;
};

// A scope that sets this thread's key and the ordinal of the segment's first drawing node. If a
// draw threw, the scope's end releases the lock.
class DrawScope {
  public:
    DrawScope(const DrawKey& key, int64_t ordinal_first, c10::Device device);
    DrawScope(const DrawScope&) = delete;
    DrawScope& operator=(const DrawScope&) = delete;
    ~DrawScope();
};

// Returns this thread's key. Outside a DrawScope, this is the key of the last DrawScope.
[[nodiscard]] const DrawKey& this_draw_key();

// Returns true if NODE itself draws random numbers; nodes in its blocks do not count.
[[nodiscard]] bool draws(const Node& node);

// Adds an operator before NODE that locks and seeds the generator, and an operator after NODE that
// unlocks it. ORDINAL counts from the segment's first drawing node. TRIP: the iteration of the
// surrounding loop, null outside loops.
void insert_draw(Node* node, int64_t ordinal, Value* trip);

// Returns the seed for the node with this ORDINAL in iteration TRIP of its loop (0 outside loops).
[[nodiscard]] uint64_t draw_seed(const DrawKey& key, int64_t ordinal, int64_t trip);

}  // namespace dslaunch::graph
