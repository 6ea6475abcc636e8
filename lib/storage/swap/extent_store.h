// The extent store keeps on disk what is not used for a while: extents, one for each shard of a
// tensor, whose every read is verified before its bytes are handed on. Data path: plan's Read
// and Write -> extents -> block file. The checksum of what was last written (XXH3, 64 bits) stays
// in memory, so that a torn, lost, misdirected or old block differs from it whatever the disk
// itself says of it. Threads: any, each through a block file of its own; reads by one at a time,
// writes by one at a time, both at once. Whoever calls orders what concerns one extent.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
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

// A read or write of an extent in flight; see IoTicket.
struct [[nodiscard]] ExtentTransfer {
    BlockFile* by = nullptr;
    IoTicket ticket;
    IoRequest request;
    ExtentId extent;
};

// The counters begin when the store is made.
struct ExtentCounters {
    Bytes read;
    Bytes written;
    int64_t reads = 0;
    int64_t writes = 0;
    int64_t moves = 0;  // writes that went to another place than the extent's last
    // Spent hashing, by who reads and by who writes.
    Duration read_checksum_time{0};
    Duration write_checksum_time{0};
};

// The room that an extent of LENGTH takes on disk and in memory: whole blocks.
[[nodiscard]] constexpr Bytes extent_bytes(Bytes length) {
    return Bytes{round_up(length.value, kBlockAlignment)};
}

class ExtentStore {
  public:
    // Extents lie in all of FILE, which must outlive this object and hold nothing else. Transfers
    // go by it, or by another block file over the same backing files: a thread's own.
    explicit ExtentStore(BlockFile& file);

    // A new extent of LENGTH, a multiple of kBlockAlignment, without content. NAME says in messages
    // what it holds ("layers.3 exp_avg, rank 1"). REQUIRES: room for it.
    [[nodiscard]] ExtentId add(std::string name, Bytes length);

    // Starts moving an extent's content; both must be waited for. FROM is at most as long as the
    // extent, INTO as long as what was last written (content_bytes()), both of whole blocks and
    // aligned to kBlockAlignment. REQUIRES: nobody writes it or, for a write, reads it meanwhile; a
    // read needs a write before. Throws as BlockFile::submit().
    ExtentTransfer read(ExtentId extent, std::span<std::byte> into, BlockFile* by = nullptr);
    ExtentTransfer write(ExtentId extent, std::span<const std::byte> from, BlockFile* by = nullptr);

    // Blocks until TRANSFER is done. A read's bytes are then what was last written. Throws
    // Error{kDisk} with file, extent, offset, and errno or checksums: the bytes must not be used.
    void wait(ExtentTransfer transfer);

    [[nodiscard]] const ExtentCounters& counters() const { return counters_; }
    // The place of the extent now, in bytes of the block file; a write moves it if there is spare
    // room.
    [[nodiscard]] int64_t offset_bytes(ExtentId extent) const { return at(extent).offset_bytes; }
    // The bytes that were last written to the extent; 0: nothing yet.
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
    void finish_read(Extent& extent, ExtentTransfer& transfer);
    [[nodiscard]] int64_t place_for_write(const Extent& extent);
    [[nodiscard]] int64_t take_gap(std::map<int64_t, int64_t>::iterator gap, int64_t length_bytes);
    void give_gap(int64_t offset_bytes, int64_t length_bytes);
    [[noreturn]] void fail_transfer(const Extent& extent, const IoRequest& request,
                                    const IoResult& result) const;
    [[noreturn]] void fail_checksum(const Extent& extent, const IoRequest& request,
                                    uint64_t found) const;

    BlockFile& file_;
    std::vector<Extent> extents_;
    std::map<int64_t, int64_t> gaps_;  // offset -> length, never adjacent
    int64_t cursor_bytes_ = 0;         // the next write looks for a gap from here
    ExtentCounters counters_;
};

}  // namespace dslaunch::storage
