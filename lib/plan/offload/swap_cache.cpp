#include "plan/offload/swap_cache.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "base/check.h"

namespace dslaunch::plan {
namespace {

// Belady's choice for n chunks in a circle repeats after n - 1 rounds: enough of them for a mean,
// not so many that thousands of chunks take seconds.
constexpr int64_t kUsesWanted = 200'000;
constexpr int64_t kStepsMin = 4;
constexpr int64_t kStepsMax = 512;

// The key of a chunk under a rule: the chunk with the smallest key gives up its buffer.
using Key = std::array<int64_t, 2>;

struct HeldChunk {
    bool held = false;
    bool changed = false;
    int64_t came = 0;  // number of a use, as last_use and next_use
    int64_t last_use = 0;
    int64_t next_use = 0;
    int64_t uses = 0;  // since it came
    Key key{};
};

Key key_of(const HeldChunk& chunk, EvictionRule rule) {
    switch (rule) {
        case EvictionRule::kLru:
            return {chunk.last_use, 0};
        case EvictionRule::kLfu:
            return {chunk.uses, chunk.last_use};
        case EvictionRule::kFifo:
            return {chunk.came, 0};
        case EvictionRule::kBelady:
            break;
    }
    return {-chunk.next_use, 0};
}

class SwapCache {
  public:
    SwapCache(const SwapTrace& trace, EvictionRule rule, int64_t buffers)
        : trace_(trace), rule_(rule), buffers_(buffers), chunks_(trace.traffic.size()) {
        DSL_CHECK(buffers > 0, "{} buffers", buffers);
        // The next use of a chunk may be in the next step, whose uses are the same.
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
        const auto c = static_cast<size_t>(use.chunk);
        HeldChunk& chunk = chunks_[c];
        const ChunkTraffic& bytes = trace_.traffic[c];
        ++now_;
        ++sums_.uses;
        if (chunk.held) {
            ++sums_.hits;
            order_.erase({chunk.key, use.chunk});
        } else {
            const int64_t read = use.update ? bytes.read : bytes.gathered;
            sums_.read_bytes += static_cast<double>(read);
            if (!use.update) return;
            if (std::ssize(order_) == buffers_) evict();
            chunk = {.held = true, .came = now_};
        }
        chunk.changed = chunk.changed || use.update;
        chunk.last_use = now_;
        chunk.next_use = now_ + ahead;
        ++chunk.uses;
        chunk.key = key_of(chunk, rule_);
        order_.insert({chunk.key, use.chunk});
    }

    void evict() {
        const auto c = static_cast<size_t>(order_.begin()->second);
        order_.erase(order_.begin());
        if (chunks_[c].changed)
            sums_.written_bytes += static_cast<double>(trace_.traffic[c].written);
        chunks_[c] = {};
    }

    const SwapTrace& trace_;
    EvictionRule rule_;
    int64_t buffers_;
    std::vector<int64_t> ahead_;  // uses from each use to the next of the same chunk
    std::vector<HeldChunk> chunks_;
    std::set<std::pair<Key, int>> order_;  // chunks held, the next to give up first
    int64_t now_ = 0;
    SwapTraffic sums_;
};

}  // namespace

std::string_view eviction_rule_name(EvictionRule rule) {
    switch (rule) {
        case EvictionRule::kLru:
            return "lru";
        case EvictionRule::kLfu:
            return "lfu";
        case EvictionRule::kFifo:
            return "fifo";
        case EvictionRule::kBelady:
            return "belady";
    }
    return "unknown";
}

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

SwapTraffic simulate_swaps(const SwapTrace& trace, EvictionRule rule, int64_t buffers) {
    if (trace.uses.empty()) return {};
    SwapCache cache(trace, rule, buffers);
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

SwapTraffic planned_swaps(const StepPlan& plan) {
    SwapTraffic traffic;
    for (const Instruction& instruction : plan.instructions) {
        const auto bytes = static_cast<double>(instruction.bytes.value);
        const bool moves_chunk = instruction.chunk >= 0;
        if (instruction.op == Op::kWrite) traffic.written_bytes += bytes;
        if (instruction.op == Op::kUpdate && instruction.buffer >= 0) {
            ++traffic.uses;
            ++traffic.hits;  // subtracted below if it was read
        }
        if (instruction.op != Op::kRead) continue;
        traffic.read_bytes += bytes;
        if (moves_chunk) {
            --traffic.hits;
            continue;
        }
        // A gather reads the bucket's chunks in order, each from its buffer or from disk.
        const auto first = static_cast<size_t>(plan.chunks.first_of_bucket[instruction.bucket]);
        for (size_t k = 0; k < instruction.reads.size(); ++k) {
            if (!plan.chunks.all[first + k].parameters_on_disk()) continue;
            ++traffic.uses;
            const auto buffer = static_cast<size_t>(instruction.reads[k]);
            traffic.hits += plan.buffers[buffer].kind == BufferKind::kOffload ? 1 : 0;
        }
    }
    return traffic;
}

}  // namespace dslaunch::plan
