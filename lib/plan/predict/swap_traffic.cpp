#include "plan/predict/swap_traffic.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/check.h"

namespace dslaunch::plan {
namespace {

// The number of uses to simulate: enough for a mean, and few enough that the simulation of
// thousands of chunks takes less than a few seconds. (With Belady's rule and n chunks used in a
// cycle, evictions repeat after n - 1 cycles.)
constexpr int64_t kUsesWanted = 200'000;
constexpr int64_t kStepsMin = 4;
constexpr int64_t kStepsMax = 512;

struct HeldChunk {
    bool held = false;
    bool changed = false;
    int64_t next_use = 0;  // index of its next use
};

class BeladyCache {
  public:
    BeladyCache(const SwapTrace& trace, int64_t buffers)
        : trace_(trace), buffers_(buffers), chunks_(trace.traffic.size()) {
        DSL_CHECK(buffers > 0, "{} buffers", buffers);
        // The next use of a chunk may be in the next step, which has the same uses.
        const auto length = std::ssize(trace.uses);
        std::vector<int64_t> next(trace.traffic.size(), std::numeric_limits<int64_t>::max() / 4);
        ahead_.resize(trace.uses.size());
        for (int64_t i = 2 * length; i-- > 0;) {
            const auto at = static_cast<size_t>(i % length);
            const auto chunk = static_cast<size_t>(trace.uses[at].chunk);
            ahead_[at] = next[chunk] - i;
            next[chunk] = i;
        }
    }

    void step() {
        for (size_t i = 0; i < trace_.uses.size(); ++i) use(trace_.uses[i], ahead_[i]);
    }
    void forget_traffic() { sums_ = {}; }
    [[nodiscard]] const SwapTraffic& traffic() const { return sums_; }

  private:
    void use(const ChunkUse& use, int64_t ahead) {
        HeldChunk& chunk = chunks_[use.chunk];
        const ChunkTraffic& bytes = trace_.traffic[use.chunk];
        ++now_;
        ++sums_.uses;
        if (chunk.held) {
            ++sums_.hits;
            order_.erase({-chunk.next_use, use.chunk});
        } else {
            sums_.read_bytes += static_cast<double>(use.update ? bytes.read : bytes.gathered);
            if (!use.update) return;
            if (std::ssize(order_) == buffers_) evict();
            chunk.held = true;
        }
        chunk.changed = chunk.changed || use.update;
        chunk.next_use = now_ + ahead;
        order_.insert({-chunk.next_use, use.chunk});
    }

    void evict() {
        const int c = order_.begin()->second;
        order_.erase(order_.begin());
        if (chunks_[c].changed)
            sums_.written_bytes += static_cast<double>(trace_.traffic[c].written);
        chunks_[c] = {};
    }

    const SwapTrace& trace_;
    int64_t buffers_;
    std::vector<int64_t> ahead_;  // by use, the distance to the next use of the same chunk
    std::vector<HeldChunk> chunks_;
    std::set<std::pair<int64_t, int>> order_;  // chunks in buffers, the most distant use first
    int64_t now_ = 0;
    SwapTraffic sums_;
};

}  // namespace

SwapTrace swap_trace(const StepPlan& plan, const ChunkFormat& format) {
    const StateChunks& chunks = plan.chunks;
    SwapTrace trace;
    for (const StateChunk& chunk : chunks.all) {
        const ChunkLayout layout = chunk_layout(chunk, format);
        trace.traffic.push_back(
            {layout.disk_parameters, layout.disk_read(), layout.disk_written()});
    }
    for (const Instruction& instruction : plan.instructions) {
        if (instruction.op == Op::kUpdate && instruction.buffer >= 0)
            trace.uses.push_back({instruction.chunk, true});
        if (instruction.op != Op::kRead || instruction.chunk >= 0) continue;
        const auto b = static_cast<size_t>(instruction.bucket);
        for (int c = chunks.first_of_bucket[b]; c < chunks.first_of_bucket[b + 1]; ++c)
            if (chunks.all[c].parameters_on_disk()) trace.uses.push_back({c, false});
    }
    return trace;
}

SwapTraffic planned_swaps(const StepPlan& plan, const ChunkFormat& format) {
    const SwapTrace trace = swap_trace(plan, format);
    SwapTraffic traffic;
    traffic.uses = traffic.hits = static_cast<double>(trace.uses.size());
    const auto read = [&](int64_t bytes) {
        --traffic.hits;
        traffic.read_bytes += static_cast<double>(bytes);
    };
    for (const Instruction& instruction : plan.instructions) {
        const bool moves_chunk = instruction.chunk >= 0 && instruction.buffer >= 0;
        if (instruction.op == Op::kWrite && moves_chunk)
            traffic.written_bytes += static_cast<double>(trace.traffic[instruction.chunk].written);
        if (instruction.op != Op::kRead) continue;
        if (moves_chunk) read(trace.traffic[instruction.chunk].read);
        if (instruction.chunk >= 0) continue;
        // A gather reads the chunks of its bucket in order, each from its buffer or from disk.
        const int first = plan.chunks.first_of_bucket[instruction.bucket];
        for (int k = 0; k < std::ssize(instruction.reads); ++k) {
            const bool on_disk = plan.chunks.all[first + k].parameters_on_disk();
            if (on_disk && plan.buffers[instruction.reads[k]].kind != BufferKind::kOffload)
                read(trace.traffic[first + k].gathered);
        }
    }
    return traffic;
}

SwapTraffic least_swaps(const SwapTrace& trace, int64_t buffers) {
    if (trace.uses.empty()) return {};
    BeladyCache cache(trace, buffers);
    const int64_t updates = std::count_if(trace.uses.begin(), trace.uses.end(),
                                          [](const ChunkUse& use) { return use.update; });
    const int64_t limit = std::clamp(kUsesWanted / std::ssize(trace.uses), kStepsMin, kStepsMax);
    const int64_t steps = std::clamp<int64_t>(updates - 1, 1, limit);
    for (int64_t step = 0; step < steps; ++step) cache.step();
    cache.forget_traffic();
    for (int64_t step = 0; step < steps; ++step) cache.step();
    SwapTraffic mean = cache.traffic();
    const auto of_steps = static_cast<double>(steps);
    mean.uses /= of_steps;
    mean.hits /= of_steps;
    mean.read_bytes /= of_steps;
    mean.written_bytes /= of_steps;
    return mean;
}

}  // namespace dslaunch::plan
