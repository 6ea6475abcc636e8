#include "plan/step/chunk_passes.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/check.h"

namespace dslaunch::plan {

namespace {

// The largest number of buffers in rotation while gradients are added: one buffer receives
// gradients, one is being read, one is being written, and one is spare.
constexpr int64_t kBuffersInTurn = 4;

class Assignment {
  public:
    Assignment(SumPasses& passes, int64_t buffers_max) : passes_(passes) {
        std::map<int, int64_t> last;
        next_.assign(passes.uses.size(), kNever);
        for (int64_t i = 0; i < std::ssize(passes.uses); ++i) {
            const auto [at, first] = last.try_emplace(use(i).chunk, i);
            previous_.push_back(first ? -1 : at->second);
            if (!first) next_[at->second] = i;
            at->second = i;
        }
        passes.buffers = static_cast<int>(std::min<int64_t>(buffers_max, passes.chunks));
        last_use_.assign(static_cast<size_t>(passes.buffers), -1);
    }

    void run() {
        for (int64_t i = 0; i < std::ssize(passes_.uses); ++i) {
            const int64_t before = previous_[i];
            const auto held = before < 0 ? last_use_.end() : std::ranges::find(last_use_, before);
            const bool there = held != last_use_.end();
            const auto buffer = there ? held : choose(i);
            if (!there) {
                if (*buffer >= 0 && next_[*buffer] != kNever) use(*buffer).write = true;
                use(i).read = before >= 0;
            }
            use(i).buffer = static_cast<int>(buffer - last_use_.begin());
            *buffer = i;
        }
    }

  private:
    static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

    [[nodiscard]] SumUse& use(int64_t i) { return passes_.uses[i]; }

    std::vector<int64_t>::iterator choose(int64_t i) {
        const auto first_update = static_cast<int64_t>(passes_.first_update());
        const int64_t in_turn = std::min<int64_t>(passes_.buffers, kBuffersInTurn);
        auto best = last_use_.end();
        const auto needed = [&](int64_t used) { return used < 0 ? kNever : next_[used]; };
        for (auto buffer = last_use_.begin(); buffer != last_use_.end(); ++buffer) {
            // During the updates, sums are read ahead into all buffers.
            const bool may_go = i < first_update
                                    ? *buffer <= i - in_turn
                                    : *buffer < first_update || *buffer <= i - passes_.buffers;
            if (*buffer >= 0 && !may_go) continue;
            const bool better = best == last_use_.end() || needed(*buffer) > needed(*best) ||
                                (needed(*buffer) == needed(*best) && *buffer < *best);
            if (better) best = buffer;
        }
        DSL_CHECK(best != last_use_.end(), "there is no buffer for use {} of the sums", i);
        return best;
    }

    SumPasses& passes_;
    std::vector<int64_t> previous_;  // by use, the previous use of the same chunk; -1: none
    std::vector<int64_t> next_;
    std::vector<int64_t> last_use_;  // by buffer; -1: none
};

// Returns the passes. ADDED lists the chunks in the order in which the step reduces them, each as
// often as it is reduced. UPDATED lists the same chunks once each, in the order of updates.
// BUFFERS_MAX is the largest number of buffers. The sums whose next use is furthest away are
// evicted. But the few sums that were just used stay in memory, so that reads and writes overlap
// with the adding. Sums for up to BUFFERS_MAX - 1 later updates are read ahead.
SumPasses make_sum_passes(std::span<const int> added, std::span<const int> updated,
                          int64_t buffers_max) {
    SumPasses passes;
    passes.chunks = static_cast<int>(updated.size());
    for (const int c : added) passes.uses.push_back({c});
    for (const int c : updated) passes.uses.push_back({c});
    Assignment(passes, buffers_max).run();
    return passes;
}

}  // namespace

void ChunkPasses::add_swap_buffers(std::vector<int>& buffers, const char* name, int64_t bytes,
                                   int count) {
    for (int k = 0; k < count; ++k)
        buffers.push_back(plan_.add({fmt::format("{} buffer {}", name, k), BufferKind::kOffload,
                                     Tier::kMemory, Bytes{bytes}, true}));
}

void ChunkPasses::add_buffers(std::span<const int> reduce_order) {
    const auto add_extent = [&](const char* name, size_t c) {
        return plan_.add({fmt::format("{} {} on disk", name, c), BufferKind::kScalars, Tier::kDisk,
                          Bytes{}, true});
    };
    for (size_t c = 0; c < plan_.chunks.all.size(); ++c) {
        extents_.push_back(add_extent("chunk", c));
        sum_extents_.push_back(sums_pass(static_cast<int>(c)) ? add_extent("sums of chunk", c)
                                                              : -1);
    }
    choose_sums(reduce_order);
    int64_t buffer_bytes = 0;
    int64_t sum_bytes = 0;
    for (const int c : plan_.chunks.turns) {
        buffer_bytes = std::max(buffer_bytes, layout_of(c).bytes);
        sum_bytes = std::max(sum_bytes, layout_of(c).sum_bytes);
    }
    add_swap_buffers(swap_buffers_, "chunk", buffer_bytes, plan_.swap_buffers);
    add_swap_buffers(sum_buffers_, "sum", sum_bytes, plan_.sum_buffers);
    const PackingRoom packing = packing_room(plan_.chunks, options_.chunk_format());
    if (const Bytes bytes{packing.total_bytes()}; bytes.value > 0)
        plan_.add({"packed chunks", BufferKind::kOffload, Tier::kMemory, bytes, true});
    first_turn_.assign(swap_buffers_.size(), -1);
    last_turn_ = first_turn_;
    next_turn_.assign(static_cast<size_t>(turns()), -1);
    for (int t = 0; t < turns(); ++t) {
        int& last = last_turn_[buffer_of(t)];
        (last < 0 ? first_turn_[buffer_of(t)] : next_turn_[last]) = t;
        last = t;
    }
    // Each buffer still holds the chunk that the previous step used in it last.
    for (const int turn : last_turn_) held_.push_back(chunk_in(turn));
}

void ChunkPasses::choose_sums(std::span<const int> reduce_order) {
    sum_turn_.assign(plan_.chunks.all.size(), -1);
    std::vector<int> updated;
    for (const int c : plan_.chunks.turns) {
        if (!sums_pass(c)) continue;
        sum_turn_[c] = static_cast<int>(updated.size());
        updated.push_back(c);
    }
    std::vector<int> added;
    for (const int b : reduce_order) {
        const auto i = static_cast<size_t>(b);
        for (int c = plan_.chunks.first_of_bucket[i]; c < plan_.chunks.first_of_bucket[i + 1]; ++c)
            if (sums_pass(c)) added.push_back(c);
    }
    sums_ = make_sum_passes(added, updated, plan_.swap_buffers);
    plan_.sum_buffers = sums_.buffers;
}

Instruction& ChunkPasses::add(Op op, int c) {
    Instruction& made =
        plan_.add(op, op == Op::kRead ? Lane::kRead : Lane::kWrite, chunk(c).bucket);
    made.chunk = c;
    return made;
}

void ChunkPasses::begin_turns() {
    for (int t = 0; t < turns(); ++t)
        if (t == last_turn_[buffer_of(t)] && t != first_turn_[buffer_of(t)]) add_write(t);
    for (int t = 0; t < turns(); ++t)
        if (t == first_turn_[buffer_of(t)] && next_turn_[t] >= 0) add_read(t);
}

void ChunkPasses::add_write(int turn) {
    const int c = chunk_in(turn);
    Instruction& write = add(Op::kWrite, c);
    write.buffer = static_cast<int>(buffer_of(turn));
    write.reads = {swap_buffers_[buffer_of(turn)]};
    write.writes = {extents_[c]};
    write.bytes = Bytes{layout_of(c).disk_written()};
}

void ChunkPasses::add_read(int turn) {
    const int c = chunk_in(turn);
    Instruction& read = add(Op::kRead, c);
    read.buffer = static_cast<int>(buffer_of(turn));
    read.reads = {extents_[c]};
    read.writes = {swap_buffers_[buffer_of(turn)]};
    read.bytes = Bytes{layout_of(c).disk_read()};
    // If the update makes the 16-bit parameters itself, the Read leaves them out. The buffer then
    // does not hold the whole chunk.
    held_[buffer_of(turn)] = layout_of(c).read_from == 0 ? c : -1;
}

void ChunkPasses::read_sums(Instruction& read, const SumUse& use) const {
    read.sum_buffer = use.buffer;
    read.reads.push_back(sum_extents_[use.chunk]);
    read.writes.push_back(sum_buffers_[use.buffer]);
    read.bytes += Bytes{layout_of(use.chunk).sum_bytes};
}

void ChunkPasses::before_accumulate(int c) {
    if (sums_pass(c) && use().read) read_sums(add(Op::kRead, c), use());
}

void ChunkPasses::join_accumulate(Instruction& accumulate) const {
    accumulate.sum_buffer = use().buffer;
    accumulate.writes.push_back(sum_buffers_[use().buffer]);
}

void ChunkPasses::after_accumulate(int c) {
    if (!sums_pass(c)) return;
    if (use().write) {
        Instruction& write = add(Op::kWrite, c);
        write.sum_buffer = use().buffer;
        write.reads = {sum_buffers_[use().buffer]};
        write.writes = {sum_extents_[c]};
        write.bytes = Bytes{layout_of(c).sum_bytes};
    }
    ++next_sum_;
}

void ChunkPasses::begin_updates() {
    for (int t = 0; t < plan_.swap_buffers; ++t) {
        const int c = chunk_in(t);
        if (sums_pass(c) && update_use(c).read) read_sums(add(Op::kRead, c), update_use(c));
    }
}

void ChunkPasses::join_update(Instruction& update) {
    join_chunk(update);
    join_sums(update);
}

void ChunkPasses::join_chunk(Instruction& update) {
    const int c = update.chunk;
    if (chunk(c).parameters_in_memory()) update.writes.push_back(extents_[c]);
    if (chunk(c).turn < 0) return;
    const size_t buffer = buffer_of(chunk(c).turn);
    update.buffer = static_cast<int>(buffer);
    update.writes.push_back(swap_buffers_[buffer]);
    held_[buffer] = c;
}

void ChunkPasses::join_sums(Instruction& update) const {
    const int c = update.chunk;
    if (chunk(c).turn < 0 || !sums_pass(c)) return;
    update.sum_buffer = update_use(c).buffer;
    update.reads.push_back(sum_buffers_[update.sum_buffer]);
}

void ChunkPasses::after_update(int c) {
    const size_t before = plan_.instructions.size();
    after_chunk(c);
    // The sums of another chunk may be read now. If after_chunk() has just added a Read of the same
    // chunk, this Read reads the sums too.
    const int other = next_with_sums(c);
    if (other < 0) return;
    const bool comes =
        plan_.instructions.size() > before && chunk(other).turn == next_turn_[chunk(c).turn];
    read_sums(comes ? plan_.instructions.back() : add(Op::kRead, other), update_use(other));
}

void ChunkPasses::after_chunk(int c) {
    const int turn = chunk(c).turn;
    if (turn < 0 || next_turn_[turn] < 0) return;
    add_write(turn);
    add_read(next_turn_[turn]);
}

void ChunkPasses::after_sums(int c) {
    const int other = next_with_sums(c);
    if (other >= 0) read_sums(add(Op::kRead, other), update_use(other));
}

// Returns the chunk whose sums may be read after the update of chunk C; -1: none.
int ChunkPasses::next_with_sums(int c) const {
    const int turn = chunk(c).turn, later = turn + plan_.swap_buffers;
    if (turn < 0 || later >= turns()) return -1;
    const int other = chunk_in(later);
    return sums_pass(other) && update_use(other).read ? other : -1;
}

void ChunkPasses::join_bucket_read(Instruction& read) const {
    const auto b = static_cast<size_t>(read.bucket);
    for (int c = plan_.chunks.first_of_bucket[b]; c < plan_.chunks.first_of_bucket[b + 1]; ++c) {
        const auto held = std::find(held_.begin(), held_.end(), c);
        const bool own = held == held_.end() || chunk(c).parameters_in_memory();
        if (own && chunk(c).parameters_on_disk())
            read.bytes += Bytes{chunk(c).range.numel * options_.parameter_bytes};
        read.reads.push_back(own ? extents_[c] : swap_buffers_[held - held_.begin()]);
    }
}

}  // namespace dslaunch::plan
