// The extent store keeps data on disk that are not used for a while: extents, one for each shard of
// a tensor. Every read is verified before its bytes are handed on. Data path: plan's Read and Write
// -> extents -> block file. The checksum of the last write (XXH3, 64 bits) stays in memory, so that
// a torn, lost, misdirected or old block differs from it whatever the disk itself reports. Threads:
// any, each through a block file of its own; reads by one at a time, writes by one at a time, both
// at once. The caller orders the calls for one extent.
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

struct ExtentId {
    int32_t index = -1;
};

// A read or write in flight of COUNT extents, which were added one after the other; see IoTicket.
struct [[nodiscard]] ExtentTransfer {
    BlockFile* by = nullptr;
    IoTicket ticket;
    IoRequest request;
    ExtentId first;
    int32_t count = 1;
};

// The counters begin when the store is made.
struct ExtentCounters {
    Bytes read;
    Bytes written;
    int64_t reads = 0;  // requests
    int64_t writes = 0;
    // The time spent hashing, by the reader and by the writer.
    Duration read_checksum_time{0};
    Duration write_checksum_time{0};
};

class ExtentStore {
  public:
    // Extents lie in all of FILE, which must outlive this object and hold nothing else. Transfers
    // use it, or another block file over the same backing files: a thread's own.
    explicit ExtentStore(BlockFile& file) : file_(file) {}

    // Adds an extent of LENGTH, a multiple of kBlockAlignment, without content. NAME describes its
    // content in messages ("layers.3 exp_avg, rank 1"). REQUIRES: room for it.
    [[nodiscard]] ExtentId add(std::string name, Bytes length);

    // A part of memory and the extent that it goes to or comes from, in whole blocks and aligned to
    // kBlockAlignment. A write is at most as long as the extent; a read is as long as the last
    // write (content_bytes()).
    struct Part {
        ExtentId extent;
        std::span<std::byte> memory;
    };
    // Returns how many of the first PARTS one request can move: parts whose extents fill their room
    // and lie one after the other in the file, and may so in memory. At least 1.
    [[nodiscard]] int32_t parts_together(std::span<const Part> parts) const;
    // Starts moving PARTS, as many as go together, in one request; it must be waited for. REQUIRES:
    // nobody writes the extents meanwhile or, for a write, reads them; a read needs a write before.
    // Throws as BlockFile::submit().
    ExtentTransfer read(std::span<const Part> parts, BlockFile* by = nullptr);
    ExtentTransfer write(std::span<const Part> parts, BlockFile* by = nullptr);

    // Blocks until TRANSFER is done. A read then has the bytes of the last write. Throws
    // Error{kDisk} with file, extent, offset, and errno or checksums: the bytes must not be used.
    void wait(ExtentTransfer transfer);

    [[nodiscard]] const ExtentCounters& counters() const { return counters_; }
    // Returns the place of the extent, in bytes of the block file.
    [[nodiscard]] int64_t offset_bytes(ExtentId extent) const { return at(extent).offset_bytes; }
    // Returns the bytes that were last written to the extent; 0: nothing yet.
    [[nodiscard]] Bytes content_bytes(ExtentId extent) const {
        return Bytes{at(extent).content_bytes};
    }

  private:
    struct Extent {
        std::string name;
        int64_t length_bytes = 0;  // room of the extent
        int64_t content_bytes = 0;
        int64_t offset_bytes = 0;
        int64_t generation = 0;  // writes so far
        uint64_t checksum = 0;
        int readers = 0;
        bool writing = false;
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
    int64_t end_bytes_ = 0;  // of the last extent
    ExtentCounters counters_;
};

}  // namespace dslaunch::storage
