#include "storage/disk/request_table.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace dslaunch::storage {

RequestTable::RequestTable(const StripeLayout& layout, const QueueLimits& limits)
    : layout_(layout), limits_(limits), entries_(static_cast<size_t>(limits.requests_max)) {
    DSL_CHECK(limits.block.value > 0 && limits.block.value % kBlockAlignment == 0,
              "the block size of {} bytes must be a multiple of {} bytes", limits.block.value,
              kBlockAlignment);
    DSL_CHECK(limits.depth > 0 && limits.requests_max > 0,
              "the queue depth {} and the number of requests {} must be above 0", limits.depth,
              limits.requests_max);
    for (uint32_t entry = 0; entry < entries_.size(); ++entry)
        free_.push_back(static_cast<uint32_t>(entries_.size()) - 1 - entry);
}

uint32_t RequestTable::add(const IoRequest& request) {
    DSL_CHECK(!free_.empty(), "more than {} I/O requests are open at once", limits_.requests_max);
    const uint32_t index = free_.back();
    free_.pop_back();
    entries_[index] = Entry{};
    entries_[index].is_used = true;
    entries_[index].request = request;
    waiting_.push_back(index);
    return index;
}

std::optional<Piece> RequestTable::next() {
    if (waiting_.empty() || in_flight_ >= limits_.depth) return std::nullopt;
    const uint32_t index = waiting_.front();
    Entry& entry = entries_[index];
    const auto total = static_cast<int64_t>(entry.request.memory.size());
    Piece piece;
    piece.entry = index;
    piece.direction = entry.request.direction;
    piece.offset_bytes = entry.request.offset_bytes + entry.started_bytes;
    const StripePlace place = stripe_place(layout_, piece.offset_bytes);
    piece.file = place.file;
    piece.file_offset_bytes = place.offset_bytes;
    piece.memory = entry.request.memory.data() + entry.started_bytes;
    piece.length_bytes =
        std::min({limits_.block.value, total - entry.started_bytes, place.run_bytes});
    entry.started_bytes += piece.length_bytes;
    if (entry.started_bytes == total) waiting_.pop_front();
    ++entry.in_flight;
    ++in_flight_;
    return piece;
}

void RequestTable::book_failure(Entry& entry, const Piece& piece, int error_number) {
    if (!entry.has_failed) {
        entry.has_failed = true;
        entry.result.error_number = error_number;
        entry.result.failed_bytes = piece.offset_bytes;
        if (entry.started_bytes < static_cast<int64_t>(entry.request.memory.size())) {
            entry.started_bytes = static_cast<int64_t>(entry.request.memory.size());
            std::erase(waiting_, piece.entry);
        }
    }
}

void RequestTable::book_moved(Entry& entry, Moved moved) {
    entry.moved.push_back(moved);
    // A moved range that begins at front_bytes continues the bytes that are transferred without a
    // gap. Appends each such range, and then searches the list again from its beginning. The list
    // is short, because it has at most one range for each piece in flight.
    for (size_t i = 0; i < entry.moved.size();) {
        if (entry.moved[i].begin_bytes != entry.front_bytes) {
            ++i;
            continue;
        }
        entry.front_bytes += entry.moved[i].length_bytes;
        entry.moved[i] = entry.moved.back();
        entry.moved.pop_back();
        i = 0;
    }
}

std::optional<Piece> RequestTable::complete(const Piece& piece, int64_t result) {
    Entry& entry = entries_[piece.entry];
    Piece rest = piece;
    if ((result == -EINTR || result == -EAGAIN) && piece.repeats < kRepeatsMax) {
        ++rest.repeats;
        return rest;
    }
    DSL_CHECK(result <= piece.length_bytes, "{} bytes were transferred for a request of {} bytes",
              result, piece.length_bytes);
    // Direct I/O can continue only at a whole block, so a partly transferred block is transferred
    // again.
    const int64_t moved = result == piece.length_bytes
                              ? result
                              : std::max<int64_t>(result, 0) / kBlockAlignment * kBlockAlignment;
    entry.result.moved_bytes += moved;
    if (moved > 0) book_moved(entry, {piece.offset_bytes - entry.request.offset_bytes, moved});
    rest.file_offset_bytes += moved;
    rest.offset_bytes += moved;
    rest.memory += moved;
    rest.length_bytes -= moved;
    if (moved > 0 && rest.length_bytes > 0) return rest;
    if (rest.length_bytes > 0) book_failure(entry, rest, result < 0 ? static_cast<int>(result) : 0);
    --entry.in_flight;
    --in_flight_;
    release_if_abandoned(piece.entry);
    return std::nullopt;
}

bool RequestTable::is_finished(uint32_t index) const {
    const Entry& entry = entries_[index];
    return entry.in_flight == 0 &&
           entry.started_bytes == static_cast<int64_t>(entry.request.memory.size());
}

int64_t RequestTable::pieces_left(uint32_t index) const {
    const Entry& entry = entries_[index];
    const int64_t bytes = static_cast<int64_t>(entry.request.memory.size()) - entry.started_bytes;
    return entry.in_flight + (bytes + limits_.block.value - 1) / limits_.block.value;
}

IoResult RequestTable::take(uint32_t index) {
    DSL_CHECK(entries_[index].is_used && is_finished(index), "I/O request {} is not finished",
              index);
    entries_[index].is_used = false;
    free_.push_back(index);
    return entries_[index].result;
}

void RequestTable::abandon(uint32_t index) {
    entries_[index].is_abandoned = true;
    release_if_abandoned(index);
}

void RequestTable::stop_all() {
    for (const uint32_t index : std::exchange(waiting_, {})) {
        entries_[index].started_bytes = static_cast<int64_t>(entries_[index].request.memory.size());
        release_if_abandoned(index);
    }
}

void RequestTable::release_if_abandoned(uint32_t index) {
    if (entries_[index].is_abandoned && is_finished(index)) static_cast<void>(take(index));
}

}  // namespace dslaunch::storage
