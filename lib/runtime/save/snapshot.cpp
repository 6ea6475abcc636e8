#include "runtime/save/snapshot.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/machine/memory_limits.h"

namespace dslaunch::runtime {

namespace {

// The largest size of a span. Each unit is written in several spans. An update of the unit waits
// only for the span that is being written, because the later spans can be copied.
constexpr size_t kSpanBytesMax = size_t{4} << 20;
// The rate of copies into newly allocated memory, as measured on several machines.
constexpr double kCopiedBytesPerSecond = 1e9;
// The memory that must stay free for other uses after a snapshot has made its copies.
constexpr Bytes kMemoryReserve{int64_t{128} << 20};

}  // namespace

Bytes memory_for_copies(int local_ranks) {
    const std::optional<MemoryLimit> share =
        tightest_share(read_memory_state().limits, local_ranks, kMemoryReserve);
    return share ? Bytes{share->left.value / 2} : Bytes{0};
}

Snapshot::Snapshot(std::vector<SavedPiece> pieces, Bytes copies_max, Fetch fetch)
    : pieces_(std::move(pieces)), fetch_(std::move(fetch)), copies_left_(copies_max) {
    for (size_t p = 0; p < pieces_.size(); ++p) {
        const SavedPiece& piece = pieces_[p];
        DSL_CHECK(piece.values != nullptr && piece.unit >= 0,
                  "a saved piece must have values in memory and a unit");
        const auto id = static_cast<size_t>(piece.unit);
        if (unit_of_id_.size() <= id) unit_of_id_.resize(id + 1, -1);
        if (unit_of_id_[id] < 0) {
            unit_of_id_[id] = static_cast<int>(units_.size());
            units_.emplace_back();
            units_.back().first = units_.back().next = spans_.size();
        }
        DSL_CHECK(unit_of_id_[id] + 1 == std::ssize(units_),
                  "the pieces of unit {} must follow one another", id);
        std::span<const std::byte> left(piece.values,
                                        static_cast<size_t>(piece.elements.numel) * sizeof(float));
        while (!left.empty()) {
            const size_t bytes = std::min(left.size(), kSpanBytesMax);
            spans_.push_back({p, left.first(bytes), /*fetched=*/!fetch_});
            left = left.subspan(bytes);
        }
        units_.back().end = spans_.size();
    }
}

void Snapshot::write_all(const Write& write) {
    std::vector<std::byte> fetched;
    try {
        for (Unit& unit : units_) {
            std::unique_lock lock(mutex_);
            while (unit.next < unit.end) {
                changed_.wait(lock, [&] { return !unit.copying; });
                Span span = spans_[unit.next++];
                unit.busy = true;
                lock.unlock();
                if (!span.fetched) {
                    fetched.resize(span.bytes.size());
                    fetch_(fetched, span.bytes.data());
                    span.bytes = fetched;
                }
                write(pieces_[span.piece], span.bytes);
                lock.lock();
                unit.busy = false;
                changed_.notify_all();
            }
            copies_left_ += Bytes{std::ssize(unit.copy.bytes())};
            unit.copy = storage::IoArena();
        }
    } catch (...) {
        release();
        throw;
    }
    release();
}

void Snapshot::release() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
}

void Snapshot::before_update(int id) {
    const auto index = static_cast<size_t>(id);
    if (index >= unit_of_id_.size() || unit_of_id_[index] < 0) return;
    Unit& unit = units_[unit_of_id_[index]];
    std::unique_lock lock(mutex_);
    if (ended_ || unit.copied) return;
    const SystemClock clock;
    const TimePoint begin = clock.now();
    const auto done = [&] {
        return ended_ || (!unit.busy && (unit.copied || unit.next == unit.end));
    };
    const std::chrono::duration<double> patience(static_cast<double>(bytes_left(unit).value) /
                                                 kCopiedBytesPerSecond);
    if (slow_ || !changed_.wait_for(lock, patience, done)) {
        slow_ = true;
        copy_rest(lock, unit);
    }
    // The writer reads its current span from the live state, so the update waits for the writer.
    changed_.wait(lock, done);
    held_up_ += clock.now() - begin;
}

Bytes Snapshot::bytes_left(const Unit& unit) const {
    int64_t bytes = 0;
    for (size_t s = unit.next; s < unit.end; ++s) bytes += std::ssize(spans_[s].bytes);
    return Bytes{bytes};
}

// Copies the rest of a unit, unless too little memory for copies is left.
void Snapshot::copy_rest(std::unique_lock<std::mutex>& lock, Unit& unit) {
    const Bytes bytes = bytes_left(unit);
    if (bytes.value == 0 || copies_left_ < bytes) return;
    copies_left_ = copies_left_ - bytes;
    unit.copying = true;
    lock.unlock();
    unit.copy = storage::IoArena(bytes);
    size_t at = 0;
    for (size_t s = unit.next; s < unit.end; ++s) {
        const std::span<std::byte> into = unit.copy.bytes().subspan(at, spans_[s].bytes.size());
        if (fetch_) {
            fetch_(into, spans_[s].bytes.data());
        } else {
            std::memcpy(into.data(), spans_[s].bytes.data(), into.size());
        }
        spans_[s].bytes = into;
        spans_[s].fetched = true;
        at += into.size();
    }
    lock.lock();
    unit.copying = false;
    unit.copied = true;
    changed_.notify_all();
}

Duration Snapshot::held_up() const {
    const std::lock_guard lock(mutex_);
    return held_up_;
}

}  // namespace dslaunch::runtime
