#include "storage/disk/request_table.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace dslaunch::storage {

RequestTable::RequestTable(const StripeLayout& layout, const QueueLimits& limits)
    : layout_(layout), limits_(limits), slots_(static_cast<size_t>(limits.requests_max)) {
    DSL_CHECK(limits.block.value > 0 && limits.block.value % kBlockAlignment == 0, "block of {}",
              limits.block.value);
    DSL_CHECK(limits.depth > 0 && limits.requests_max > 0, "depth {}, requests {}", limits.depth,
              limits.requests_max);
    for (uint32_t slot = 0; slot < slots_.size(); ++slot)
        free_.push_back(static_cast<uint32_t>(slots_.size()) - 1 - slot);
}

uint32_t RequestTable::add(const IoRequest& request) {
    DSL_CHECK(!free_.empty(), "more than {} I/O requests at once", limits_.requests_max);
    const uint32_t index = free_.back();
    free_.pop_back();
    slots_[index] = Slot{};
    slots_[index].used = true;
    slots_[index].request = request;
    waiting_.push_back(index);
    return index;
}

std::optional<Piece> RequestTable::next() {
    if (waiting_.empty() || in_flight_ >= limits_.depth) return std::nullopt;
    const uint32_t index = waiting_.front();
    Slot& slot = slots_[index];
    const auto total = static_cast<int64_t>(slot.request.memory.size());
    Piece piece;
    piece.slot = index;
    piece.direction = slot.request.direction;
    piece.offset_bytes = slot.request.offset_bytes + slot.started_bytes;
    const StripePlace place = stripe_place(layout_, piece.offset_bytes);
    piece.file = place.file;
    piece.file_offset_bytes = place.offset_bytes;
    piece.memory = slot.request.memory.data() + slot.started_bytes;
    piece.length_bytes =
        std::min({limits_.block.value, total - slot.started_bytes, place.run_bytes});
    slot.started_bytes += piece.length_bytes;
    if (slot.started_bytes == total) waiting_.pop_front();
    ++slot.in_flight;
    ++in_flight_;
    return piece;
}

void RequestTable::book_failure(Slot& slot, const Piece& piece, int error_number) {
    if (!slot.failed) {
        slot.failed = true;
        slot.result.error_number = error_number;
        slot.result.failed_bytes = piece.offset_bytes;
        if (slot.started_bytes < static_cast<int64_t>(slot.request.memory.size())) {
            slot.started_bytes = static_cast<int64_t>(slot.request.memory.size());
            std::erase(waiting_, piece.slot);
        }
    }
}

void RequestTable::book_moved(Slot& slot, Moved moved) {
    slot.moved.push_back(moved);
    // The ranges are at most as many as pieces in flight, each looked at again when the front
    // moves.
    for (size_t i = 0; i < slot.moved.size();) {
        if (slot.moved[i].begin_bytes != slot.front_bytes) {
            ++i;
            continue;
        }
        slot.front_bytes += slot.moved[i].length_bytes;
        slot.moved[i] = slot.moved.back();
        slot.moved.pop_back();
        i = 0;
    }
}

std::optional<Piece> RequestTable::complete(const Piece& piece, int64_t result) {
    Slot& slot = slots_[piece.slot];
    Piece rest = piece;
    if ((result == -EINTR || result == -EAGAIN) && piece.repeats < kRepeatsMax) {
        ++rest.repeats;
        return rest;
    }
    DSL_CHECK(result <= piece.length_bytes, "{} of {} bytes", result, piece.length_bytes);
    // Direct I/O goes on at whole blocks only; a part of a block is moved once more.
    const int64_t moved = result == piece.length_bytes
                              ? result
                              : std::max<int64_t>(result, 0) / kBlockAlignment * kBlockAlignment;
    slot.result.moved_bytes += moved;
    if (moved > 0) book_moved(slot, {piece.offset_bytes - slot.request.offset_bytes, moved});
    rest.file_offset_bytes += moved;
    rest.offset_bytes += moved;
    rest.memory += moved;
    rest.length_bytes -= moved;
    if (moved > 0 && rest.length_bytes > 0) return rest;
    if (rest.length_bytes > 0) book_failure(slot, rest, result < 0 ? static_cast<int>(result) : 0);
    --slot.in_flight;
    --in_flight_;
    release_if_abandoned(piece.slot);
    return std::nullopt;
}

bool RequestTable::finished(uint32_t index) const {
    const Slot& slot = slots_[index];
    return slot.in_flight == 0 &&
           slot.started_bytes == static_cast<int64_t>(slot.request.memory.size());
}

int64_t RequestTable::pieces_left(uint32_t index) const {
    const Slot& slot = slots_[index];
    const int64_t bytes = static_cast<int64_t>(slot.request.memory.size()) - slot.started_bytes;
    return slot.in_flight + (bytes + limits_.block.value - 1) / limits_.block.value;
}

IoResult RequestTable::take(uint32_t index) {
    DSL_CHECK(slots_[index].used && finished(index), "slot {} is not finished", index);
    slots_[index].used = false;
    free_.push_back(index);
    return slots_[index].result;
}

void RequestTable::abandon(uint32_t index) {
    slots_[index].abandoned = true;
    release_if_abandoned(index);
}

void RequestTable::stop_all() {
    for (const uint32_t index : std::exchange(waiting_, {})) {
        slots_[index].started_bytes = static_cast<int64_t>(slots_[index].request.memory.size());
        release_if_abandoned(index);
    }
}

void RequestTable::release_if_abandoned(uint32_t index) {
    if (slots_[index].abandoned && finished(index)) static_cast<void>(take(index));
}

}  // namespace dslaunch::storage
