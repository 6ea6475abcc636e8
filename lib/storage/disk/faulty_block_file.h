// A block file that does wrong what a disk can do wrong, to prove that whoever reads finds out.
// Wraps any other; everything but the chosen request passes through.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "storage/disk/block_file.h"

namespace dslaunch::storage {

enum class FaultKind {
    kNone,
    kIoError,      // EIO, nothing moved
    kShort,        // half of it moved, and told so
    kTorn,         // a write: half of it moved, told as whole
    kBitFlip,      // one bit differs, on the way to or from the disk
    kMisdirected,  // moved at another offset, told as right
    kLost,         // a write: nothing moved, told as whole; the next read finds stale bytes
    kNoSpace,      // a write: ENOSPC
    kGone,         // this request and all that follow: ENODEV
    kSlow,         // right, but this request and all that follow come late
};
[[nodiscard]] const char* fault_name(FaultKind kind);

struct Fault {
    FaultKind kind = FaultKind::kNone;
    IoDirection direction = IoDirection::kRead;  // direction of the request that is hit
    int64_t requests_before = 0;                 // requests of that direction that pass before it
    std::chrono::milliseconds delay{20};         // kSlow
};

class FaultyBlockFile final : public BlockFile {
  public:
    // INNER must outlive this object. REQUIRES: kTorn, kLost and kNoSpace hit a write.
    FaultyBlockFile(BlockFile& inner, const Fault& fault);
    FaultyBlockFile(const FaultyBlockFile&) = delete;
    FaultyBlockFile& operator=(const FaultyBlockFile&) = delete;
    // Waits for what nobody has waited for.
    ~FaultyBlockFile() override;

    [[nodiscard]] bool has_struck() const { return struck_; }

    void progress() override { inner_.progress(); }
    void register_memory(std::span<std::byte> arena) override { inner_.register_memory(arena); }
    [[nodiscard]] Bytes capacity() const override { return inner_.capacity(); }
    [[nodiscard]] const std::string& path_at(int64_t offset_bytes) const override {
        return inner_.path_at(offset_bytes);
    }
    [[nodiscard]] BlockFileFacts facts() const override;

  protected:
    [[nodiscard]] uint32_t start(const IoRequest& request) override;
    [[nodiscard]] int64_t await_front(uint32_t entry, int64_t known_bytes) override;
    IoResult finish(uint32_t entry) override;
    void abandon(uint32_t entry) noexcept override;

  private:
    struct Entry {
        bool used = false;
        FaultKind fault = FaultKind::kNone;
        IoRequest request;
        IoTicket inner;
        bool has_inner = false;
        std::vector<std::byte> altered;  // the bytes that are written instead, with room to align
                                         // them
    };
    [[nodiscard]] FaultKind strike(IoDirection direction);
    void start_faulty(Entry& entry);
    [[nodiscard]] IoResult tell(const Entry& entry, IoResult moved) const;

    BlockFile& inner_;
    Fault fault_;
    int64_t seen_ = 0;  // requests of the fault's direction
    bool struck_ = false;
    std::vector<Entry> entries_;
};

}  // namespace dslaunch::storage
