#include "storage/disk/faulty_block_file.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <thread>
#include <utility>

#include "base/check.h"

namespace dslaunch::storage {
namespace {

constexpr std::byte kFlip{0x10};

// About half, in whole blocks; nothing of a single block.
size_t half_of(size_t length) {
    return length / 2 / kBlockAlignment * kBlockAlignment;
}

}  // namespace

const char* fault_name(FaultKind kind) {
    switch (kind) {
        case FaultKind::kNone:
            return "none";
        case FaultKind::kIoError:
            return "I/O error";
        case FaultKind::kShort:
            return "short";
        case FaultKind::kTorn:
            return "torn";
        case FaultKind::kBitFlip:
            return "bit flip";
        case FaultKind::kMisdirected:
            return "misdirected";
        case FaultKind::kLost:
            return "lost";
        case FaultKind::kNoSpace:
            return "no space";
        case FaultKind::kGone:
            return "gone";
        case FaultKind::kSlow:
            return "slow";
    }
    return "unknown";
}

FaultyBlockFile::~FaultyBlockFile() {
    for (Entry& entry : entries_)
        if (entry.has_inner) static_cast<void>(entry.inner.wait());
}

FaultyBlockFile::FaultyBlockFile(BlockFile& inner, const Fault& fault)
    : inner_(inner), fault_(fault) {
    const bool write_only = fault.kind == FaultKind::kTorn || fault.kind == FaultKind::kLost ||
                            fault.kind == FaultKind::kNoSpace;
    DSL_CHECK(!write_only || fault.direction == IoDirection::kWrite, "a read cannot be {}",
              fault_name(fault.kind));
}

BlockFileFacts FaultyBlockFile::facts() const {
    BlockFileFacts facts = inner_.facts();
    facts.engine = fmt::format("faulty {}", facts.engine);
    return facts;
}

FaultKind FaultyBlockFile::strike(IoDirection direction) {
    const bool stays = fault_.kind == FaultKind::kGone || fault_.kind == FaultKind::kSlow;
    if (struck_ && stays) return fault_.kind;
    if (struck_ || fault_.kind == FaultKind::kNone || direction != fault_.direction ||
        seen_++ < fault_.requests_before) {
        return FaultKind::kNone;
    }
    struck_ = true;
    return fault_.kind;
}

void FaultyBlockFile::start_faulty(Entry& entry) {
    IoRequest request = entry.request;
    const size_t length = request.memory.size();
    const bool writes = request.direction == IoDirection::kWrite;
    switch (entry.fault) {
        case FaultKind::kIoError:
        case FaultKind::kLost:
        case FaultKind::kNoSpace:
        case FaultKind::kGone:
            return;
        case FaultKind::kShort:
        case FaultKind::kTorn:
            if (half_of(length) == 0) return;
            request.memory = request.memory.first(half_of(length));
            break;
        case FaultKind::kMisdirected:
            // The neighbour lies behind or, at the end, before.
            request.offset_bytes +=
                request.offset_bytes + 2 * static_cast<int64_t>(length) <= capacity().value
                    ? static_cast<int64_t>(length)
                    : -static_cast<int64_t>(length);
            break;
        case FaultKind::kBitFlip:
            if (writes) {
                entry.altered.resize(length + kBlockAlignment);
                void* place = entry.altered.data();
                size_t room = entry.altered.size();
                auto* const aligned =
                    static_cast<std::byte*>(std::align(kBlockAlignment, length, place, room));
                std::copy(request.memory.begin(), request.memory.end(), aligned);
                aligned[length / 2] ^= kFlip;
                request.memory = {aligned, length};
            }
            break;
        case FaultKind::kNone:
        case FaultKind::kSlow:
            break;
    }
    entry.inner = inner_.submit(request);
    entry.has_inner = true;
}

uint32_t FaultyBlockFile::start(const IoRequest& request) {
    auto free =
        std::find_if(entries_.begin(), entries_.end(), [](const Entry& s) { return !s.used; });
    if (free == entries_.end()) free = entries_.insert(entries_.end(), Entry{});
    free->used = true;
    free->fault = strike(request.direction);
    free->request = request;
    start_faulty(*free);
    return static_cast<uint32_t>(free - entries_.begin());
}

IoResult FaultyBlockFile::tell(const Entry& entry, IoResult moved) const {
    const auto failed = [&](int error_number) {
        return IoResult{error_number, 0, entry.request.offset_bytes};
    };
    switch (entry.fault) {
        case FaultKind::kIoError:
            return failed(-EIO);
        case FaultKind::kNoSpace:
            return failed(-ENOSPC);
        case FaultKind::kGone:
            return failed(-ENODEV);
        case FaultKind::kShort:
            return {0, moved.moved_bytes, entry.request.offset_bytes + moved.moved_bytes};
        case FaultKind::kTorn:
        case FaultKind::kLost:
            return {0, static_cast<int64_t>(entry.request.memory.size()), 0};
        case FaultKind::kBitFlip:
            if (entry.request.direction == IoDirection::kRead)
                entry.request.memory[entry.request.memory.size() / 2] ^= kFlip;
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

// A fault shows when its request is waited for.
int64_t FaultyBlockFile::await_front(uint32_t index, int64_t known_bytes) {
    Entry& entry = entries_[index];
    return entry.fault == FaultKind::kNone ? entry.inner.wait_for_front(known_bytes) : known_bytes;
}

IoResult FaultyBlockFile::finish(uint32_t index) {
    Entry entry = std::exchange(entries_[index], Entry{});
    const IoResult moved = entry.has_inner ? entry.inner.wait() : IoResult{};
    return tell(entry, moved);
}

// The bytes that are written instead must stay until they have been: the destructor waits.
void FaultyBlockFile::abandon(uint32_t) noexcept {}

}  // namespace dslaunch::storage
