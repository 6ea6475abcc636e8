// A block file that makes the errors that a disk can make, to prove that every reader finds them.
// It wraps another block file, and changes nothing except the chosen request.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "storage/disk/block_file.h"

namespace dslaunch::test {

using namespace storage;

enum class FaultKind {
    kNone,
    kIoError,      // EIO, and nothing is moved
    kShort,        // half is moved, and this is reported
    kTorn,         // a write: half is moved, but reported as whole
    kBitFlip,      // one bit changes on the way to or from the disk
    kMisdirected,  // moved at another offset, but reported as right
    kLost,         // a write: nothing is moved, but reported as whole; the next read finds old
                   // bytes
    kNoSpace,      // a write: ENOSPC
    kGone,         // this request and all later ones: ENODEV
    kSlow,         // right, but this request and all later ones are slow
};
[[nodiscard]] inline const char* fault_name(FaultKind kind) {
    static constexpr const char* kNames[] = {"none",     "I/O error",   "short", "torn",
                                             "bit flip", "misdirected", "lost",  "no space",
                                             "gone",     "slow"};
    return kNames[static_cast<size_t>(kind)];
}

struct Fault {
    FaultKind kind = FaultKind::kNone;
    IoDirection direction = IoDirection::kRead;  // direction of the faulty request
    int64_t requests_before = 0;                 // requests in that direction before the faulty one
    std::chrono::milliseconds delay{20};         // kSlow
};

class FaultyBlockFile final : public BlockFile {
  public:
    // INNER must outlive this object. REQUIRES: kTorn, kLost and kNoSpace hit a write.
    FaultyBlockFile(BlockFile& inner, const Fault& fault) : inner_(inner), fault_(fault) {
        const bool write_only = fault.kind == FaultKind::kTorn || fault.kind == FaultKind::kLost ||
                                fault.kind == FaultKind::kNoSpace;
        DSL_CHECK(!write_only || fault.direction == IoDirection::kWrite, "a read cannot be {}",
                  fault_name(fault.kind));
    }
    FaultyBlockFile(const FaultyBlockFile&) = delete;
    FaultyBlockFile& operator=(const FaultyBlockFile&) = delete;
    // Waits for requests that nobody has waited for.
    ~FaultyBlockFile() override {
        for (Entry& entry : entries_)
            if (entry.has_inner) static_cast<void>(entry.inner.wait());
    }

    [[nodiscard]] bool has_struck() const { return struck_; }

    void progress() override { inner_.progress(); }
    void register_memory(std::span<std::byte> arena) override { inner_.register_memory(arena); }
    [[nodiscard]] Bytes capacity() const override { return inner_.capacity(); }
    [[nodiscard]] const std::string& path_at(int64_t offset_bytes) const override {
        return inner_.path_at(offset_bytes);
    }
    [[nodiscard]] BlockFileFacts facts() const override { return inner_.facts(); }

  protected:
    [[nodiscard]] uint32_t start(const IoRequest& request) override {
        auto free = std::ranges::find(entries_, false, &Entry::used);
        if (free == entries_.end()) free = entries_.insert(entries_.end(), Entry{});
        free->used = true;
        free->fault = strike(request.direction);
        free->request = request;
        start_faulty(*free);
        return static_cast<uint32_t>(free - entries_.begin());
    }
    // Returns at once if the request is faulty: the fault appears when the request is waited for.
    [[nodiscard]] int64_t await_front(uint32_t index, int64_t known_bytes) override {
        Entry& entry = entries_[index];
        return entry.fault == FaultKind::kNone ? entry.inner.wait_for_front(known_bytes)
                                               : known_bytes;
    }
    IoResult finish(uint32_t index) override {
        Entry entry = std::exchange(entries_[index], Entry{});
        return tell(entry, entry.has_inner ? entry.inner.wait() : IoResult{});
    }
    // Does nothing. The bytes that are written instead must stay until they are written, so the
    // destructor waits for them.
    void abandon(uint32_t) noexcept override {}

  private:
    static constexpr std::byte kFlip{0x10};

    struct Entry {
        bool used = false;
        FaultKind fault = FaultKind::kNone;
        IoRequest request;
        IoTicket inner;
        bool has_inner = false;
        std::vector<std::byte> altered;  // bytes that are written instead, with room for alignment
    };

    [[nodiscard]] FaultKind strike(IoDirection direction) {
        const bool stays = fault_.kind == FaultKind::kGone || fault_.kind == FaultKind::kSlow;
        if (struck_ && stays) return fault_.kind;
        if (struck_ || fault_.kind == FaultKind::kNone || direction != fault_.direction ||
            seen_++ < fault_.requests_before) {
            return FaultKind::kNone;
        }
        struck_ = true;
        return fault_.kind;
    }

    void start_faulty(Entry& entry) {
        IoRequest request = entry.request;
        const auto length = std::ssize(request.memory);
        // Moves about half of the request, in whole blocks, so nothing of a single block.
        const int64_t half = length / 2 / kBlockAlignment * kBlockAlignment;
        switch (entry.fault) {
            case FaultKind::kIoError:
            case FaultKind::kLost:
            case FaultKind::kNoSpace:
            case FaultKind::kGone:
                return;
            case FaultKind::kShort:
            case FaultKind::kTorn:
                if (half == 0) return;
                request.memory = request.memory.first(static_cast<size_t>(half));
                break;
            case FaultKind::kMisdirected:
                // Uses the neighbouring range, which is after this one or, at the end of the file,
                // before it.
                request.offset_bytes +=
                    request.offset_bytes + 2 * length <= capacity().value ? length : -length;
                break;
            case FaultKind::kBitFlip:
                if (request.direction == IoDirection::kWrite) request.memory = flipped(entry);
                break;
            case FaultKind::kNone:
            case FaultKind::kSlow:
                break;
        }
        entry.inner = inner_.submit(request);
        entry.has_inner = true;
    }

    static std::span<std::byte> flipped(Entry& entry) {
        const std::span<std::byte> right = entry.request.memory;
        entry.altered.resize(right.size() + kBlockAlignment);
        void* place = entry.altered.data();
        size_t room = entry.altered.size();
        auto* const aligned =
            static_cast<std::byte*>(std::align(kBlockAlignment, right.size(), place, room));
        std::ranges::copy(right, aligned);
        aligned[right.size() / 2] ^= kFlip;
        return {aligned, right.size()};
    }

    [[nodiscard]] IoResult tell(const Entry& entry, IoResult moved) const {
        const IoRequest& request = entry.request;
        switch (entry.fault) {
            case FaultKind::kIoError:
                return {-EIO, 0, request.offset_bytes};
            case FaultKind::kNoSpace:
                return {-ENOSPC, 0, request.offset_bytes};
            case FaultKind::kGone:
                return {-ENODEV, 0, request.offset_bytes};
            case FaultKind::kShort:
                return {0, moved.moved_bytes, request.offset_bytes + moved.moved_bytes};
            case FaultKind::kTorn:
            case FaultKind::kLost:
                return {0, std::ssize(request.memory), 0};
            case FaultKind::kBitFlip:
                if (request.direction == IoDirection::kRead)
                    request.memory[request.memory.size() / 2] ^= kFlip;
                return moved;
            case FaultKind::kSlow:
                std::this_thread::sleep_for(fault_.delay);
                return moved;
            case FaultKind::kNone:
            case FaultKind::kMisdirected:
                return moved;
        }
        return moved;
    }

    BlockFile& inner_;
    Fault fault_;
    int64_t seen_ = 0;  // requests so far in the fault's direction
    bool struck_ = false;
    std::vector<Entry> entries_;
};

}  // namespace dslaunch::test
