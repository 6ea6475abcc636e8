// The extent store keeps on disk data that are not used for a while. An extent is the space for one
// shard of a tensor. Every read is verified before its bytes are used: the checksum of the last
// write (XXH3, 64 bits) stays in memory, so that a torn, lost, misdirected or old block does not
// match it, whatever the disk itself reports. Data path: plan's Read and Write -> extents -> block
// file. Threads: any number, each with its own block file. At most one thread may read and at most
// one may write at the same time. The caller orders the calls for one extent.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "storage/disk/block_file.h"

namespace dslaunch::storage {

// An extent of one store.
struct ExtentId {
    int32_t index = -1;
};

// A read or write in flight; see IoTicket. It transfers COUNT extents that were added one after the
// other.
struct [[nodiscard]] ExtentTransfer {
    BlockFile* by = nullptr;
    IoTicket ticket;
    IoRequest request;
    ExtentId first;
    int32_t count = 1;
};

// Counters since the store was made.
struct ExtentCounters {
    Bytes read;
    Bytes written;
    int64_t reads = 0;  // requests
    int64_t writes = 0;
    // The time spent hashing what was read and what was written.
    Duration read_checksum_time{0};
    Duration write_checksum_time{0};
};

// The extents in one block file.
class ExtentStore {
  public:
    // Extents may occupy the whole of FILE, which must outlive this object and be used for nothing
    // else. Transfers use FILE, or another block file over the same backing files, so that each
    // thread can use its own block file.
    explicit ExtentStore(BlockFile& file) : file_(file) {}

    // Adds an empty extent of LENGTH, a multiple of kBlockAlignment. NAME describes its content in
    // messages ("layers.3 exp_avg, rank 1"). REQUIRES: the file has room for it.
    [[nodiscard]] ExtentId add(std::string name, Bytes length);

    // One piece of a transfer: an extent, and the memory that is written to the extent or read from
    // it. The memory must be whole blocks, aligned to kBlockAlignment. A write is at most as long
    // as the extent; a read is exactly as long as the last write (content_bytes()).
    struct Part {
        ExtentId extent;
        std::span<std::byte> memory;
    };
    // Returns how many parts at the beginning of PARTS fit in one request; at least 1. The extents
    // of these parts must follow each other in the file, and their memory must be contiguous. All
    // of these parts except the last must fill their extents.
    [[nodiscard]] int32_t parts_together(std::span<const Part> parts) const;
    // Starts one request that transfers PARTS; wait() must be called for it. REQUIRES:
    // parts_together() accepts all of PARTS; during the transfer, nothing else writes the extents,
    // and during a write, nothing reads them; extents that are read have been written before.
    // Throws what BlockFile::submit() throws.
    ExtentTransfer read(std::span<const Part> parts, BlockFile* by = nullptr);
    ExtentTransfer write(std::span<const Part> parts, BlockFile* by = nullptr);

    // Blocks until TRANSFER is done. After a read, the memory contains the bytes of the last write.
    // Throws Error{kDisk} with file, extent, offset, and errno or checksums; the bytes must not be
    // used then.
    void wait(ExtentTransfer transfer);

    // Returns the counters. Only the code that starts the transfers may call this function.
    [[nodiscard]] const ExtentCounters& counters() const { return counters_; }
    // Returns the offset of the extent in the block file, in bytes.
    [[nodiscard]] int64_t offset_bytes(ExtentId extent) const { return at(extent).offset_bytes; }
    // Returns the number of bytes of the last write to the extent; 0 before the first.
    [[nodiscard]] Bytes content_bytes(ExtentId extent) const {
        return Bytes{at(extent).content_bytes};
    }

  private:
    struct Extent {
        std::string name;
        int64_t length_bytes = 0;  // the size of the extent's space
        int64_t content_bytes = 0;
        int64_t offset_bytes = 0;
        int64_t generation = 0;  // number of writes so far
        uint64_t checksum = 0;
        int readers = 0;
        bool is_writing = false;
    };
    [[nodiscard]] const Extent& at(ExtentId extent) const;
    [[nodiscard]] Extent& at(ExtentId extent);
    [[nodiscard]] std::span<Extent> extents_of(ExtentId first, int32_t count);
    void finish_read(std::span<Extent> extents, ExtentTransfer& transfer);
    [[noreturn]] void fail_transfer(std::span<const Extent> extents, const IoRequest& request,
                                    const IoResult& result) const;
    [[noreturn]] void fail_checksum(const Extent& extent, uint64_t found) const;

    BlockFile& file_;
    std::vector<Extent> extents_;
    int64_t end_bytes_ = 0;  // the end of the last extent
    ExtentCounters counters_;
};

}  // namespace dslaunch::storage
