#include "storage/swap/extent_store.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::storage {
namespace {

// XXH3 of bytes that come one after the other. The device is looked after between pieces.
class Checksum {
  public:
    // Time spent hashing is added to SPENT.
    Checksum(BlockFile& by, Duration& spent) : by_(by), spent_(spent) {
        XXH3_64bits_reset(&state_);
    }
    void add(std::span<const std::byte> bytes) {
        const auto start = std::chrono::steady_clock::now();
        while (!bytes.empty()) {
            const size_t length = std::min(bytes.size(), kPieceBytes);
            XXH3_64bits_update(&state_, bytes.data(), length);
            bytes = bytes.subspan(length);
            by_.progress();
        }
        spent_ += std::chrono::steady_clock::now() - start;
    }
    [[nodiscard]] uint64_t digest() const { return XXH3_64bits_digest(&state_); }

  private:
    static constexpr size_t kPieceBytes = size_t{1} << 20;  // some 50 us of hashing
    BlockFile& by_;
    Duration& spent_;
    XXH3_state_t state_;
};

}  // namespace

ExtentStore::ExtentStore(BlockFile& file) : file_(file) {
    gaps_.emplace(0, file.capacity().value);
}

const ExtentStore::Extent& ExtentStore::at(ExtentId extent) const {
    DSL_CHECK(extent.index >= 0 && static_cast<size_t>(extent.index) < extents_.size(),
              "extent {} of {}", extent.index, extents_.size());
    return extents_[extent.index];
}

ExtentStore::Extent& ExtentStore::at(ExtentId extent) {
    return const_cast<Extent&>(std::as_const(*this).at(extent));
}

ExtentId ExtentStore::add(std::string name, Bytes length) {
    DSL_CHECK(length.value > 0 && length.value % kBlockAlignment == 0, "extent `{}` of {} bytes",
              name, length.value);
    const auto gap = std::find_if(gaps_.begin(), gaps_.end(),
                                  [&](const auto& g) { return g.second >= length.value; });
    DSL_CHECK(gap != gaps_.end(), "no room for extent `{}` of {} bytes in {}", name, length.value,
              file_.capacity().value);
    Extent extent;
    extent.name = std::move(name);
    extent.length_bytes = length.value;
    extent.offset_bytes = take_gap(gap, length.value);
    extents_.push_back(std::move(extent));
    return {static_cast<int32_t>(extents_.size()) - 1};
}

int64_t ExtentStore::take_gap(std::map<int64_t, int64_t>::iterator gap, int64_t length_bytes) {
    const auto [offset, length] = *gap;
    gaps_.erase(gap);
    if (length > length_bytes) gaps_.emplace(offset + length_bytes, length - length_bytes);
    return offset;
}

void ExtentStore::give_gap(int64_t offset_bytes, int64_t length_bytes) {
    auto behind = gaps_.lower_bound(offset_bytes);
    if (behind != gaps_.end() && behind->first == offset_bytes + length_bytes) {
        length_bytes += behind->second;
        behind = gaps_.erase(behind);
    }
    if (behind != gaps_.begin()) {
        const auto before = std::prev(behind);
        if (before->first + before->second == offset_bytes) {
            before->second += length_bytes;
            return;
        }
    }
    gaps_.emplace(offset_bytes, length_bytes);
}

// The first gap behind the cursor that fits, so that all places take their turn; without one the
// extent stays where it is.
int64_t ExtentStore::place_for_write(const Extent& extent) {
    const auto fits = [&](const auto& gap) { return gap.second >= extent.length_bytes; };
    const auto start = gaps_.lower_bound(cursor_bytes_);
    auto gap = std::find_if(start, gaps_.end(), fits);
    if (gap == gaps_.end()) {
        gap = std::find_if(gaps_.begin(), start, fits);
        if (gap == start) return extent.offset_bytes;
    }
    const int64_t offset = take_gap(gap, extent.length_bytes);
    cursor_bytes_ = offset + extent.length_bytes;
    return offset;
}

ExtentTransfer ExtentStore::read(ExtentId id, std::span<std::byte> into, BlockFile* by) {
    if (by == nullptr) by = &file_;
    Extent& extent = at(id);
    DSL_CHECK(std::ssize(into) == extent.content_bytes, "`{}`: {} of {} bytes", extent.name,
              into.size(), extent.content_bytes);
    DSL_CHECK(extent.generation > 0 && !extent.writing, "`{}` is read before it is written",
              extent.name);
    const IoRequest request = read_request(extent.offset_bytes, into);
    IoTicket ticket = by->submit(request);
    ++extent.readers;
    return {by, std::move(ticket), request, id};
}

ExtentTransfer ExtentStore::write(ExtentId id, std::span<const std::byte> from, BlockFile* by) {
    if (by == nullptr) by = &file_;
    Extent& extent = at(id);
    DSL_CHECK(std::ssize(from) > 0 && std::ssize(from) <= extent.length_bytes,
              "`{}`: {} of {} bytes", extent.name, from.size(), extent.length_bytes);
    DSL_CHECK(extent.readers == 0 && !extent.writing, "`{}` is written while it is in use",
              extent.name);
    const IoRequest request = write_request(place_for_write(extent), from);
    IoTicket ticket = by->submit(request);
    extent.writing = true;
    extent.content_bytes = std::ssize(from);
    ++extent.generation;
    // While the device writes.
    Checksum checksum(*by, counters_.write_checksum_time);
    checksum.add(from);
    extent.checksum = checksum.digest();
    return {by, std::move(ticket), request, id};
}

void ExtentStore::wait(ExtentTransfer transfer) {
    const IoRequest& request = transfer.request;
    Extent& extent = at(transfer.extent);
    if (request.direction == IoDirection::kRead) {
        finish_read(extent, transfer);
        return;
    }
    const IoResult result = transfer.ticket.wait();
    if (!result.moved(extent.content_bytes)) fail_transfer(extent, request, result);
    extent.writing = false;
    if (request.offset_bytes != extent.offset_bytes) {
        give_gap(std::exchange(extent.offset_bytes, request.offset_bytes), extent.length_bytes);
        ++counters_.moves;
    }
    counters_.written += Bytes{extent.content_bytes};
    ++counters_.writes;
}

// The bytes that have come are hashed while the device brings the rest.
void ExtentStore::finish_read(Extent& extent, ExtentTransfer& transfer) {
    const IoRequest& request = transfer.request;
    Checksum checksum(*transfer.by, counters_.read_checksum_time);
    int64_t hashed_bytes = 0;
    while (hashed_bytes < extent.content_bytes) {
        const int64_t moved_bytes = transfer.ticket.wait_for_front(hashed_bytes);
        if (moved_bytes == hashed_bytes) break;
        checksum.add(request.memory.subspan(static_cast<size_t>(hashed_bytes),
                                            static_cast<size_t>(moved_bytes - hashed_bytes)));
        hashed_bytes = moved_bytes;
    }
    const IoResult result = transfer.ticket.wait();
    if (!result.moved(extent.content_bytes)) fail_transfer(extent, request, result);
    checksum.add(request.memory.subspan(static_cast<size_t>(hashed_bytes)));
    const uint64_t found = checksum.digest();
    if (found != extent.checksum) fail_checksum(extent, request, found);
    --extent.readers;
    counters_.read += Bytes{extent.content_bytes};
    ++counters_.reads;
}

void ExtentStore::fail_transfer(const Extent& extent, const IoRequest& request,
                                const IoResult& result) const {
    const char* const direction = io_direction_name(request.direction);
    const std::string& path = file_.path_at(result.failed_bytes);
    const std::string where =
        fmt::format("`{}` (generation {}, {} at offset {})", extent.name, extent.generation,
                    to_text(Bytes{extent.content_bytes}), request.offset_bytes);
    if (result.error_number == 0)
        fail(ExitCode::kDisk,
             "{}: short {} of {}: expected {} bytes, found {}, ending at offset {}: the file was "
             "cut or its disk is full or failing; the kernel's log (dmesg) says more",
             path, direction, where, extent.content_bytes, result.moved_bytes, result.failed_bytes);
    fail(ExitCode::kDisk,
         "{}: {} of {} failed at offset {}: {}: the disk is full, failing or gone; free room or "
         "look into the kernel's log (dmesg), or name another nvme_path",
         path, direction, where, result.failed_bytes, errno_text(-result.error_number));
}

void ExtentStore::fail_checksum(const Extent& extent, const IoRequest& request,
                                uint64_t found) const {
    fail(ExitCode::kDisk,
         "{}: `{}` (generation {}, {} at offset {}) does not read as it was written: XXH3 expected "
         "{:016x}, found {:016x}: the disk tore, lost, misplaced or changed a block, or somebody "
         "else wrote to the file. Nothing of it was used; do not train on this disk",
         file_.path_at(request.offset_bytes), extent.name, extent.generation,
         to_text(Bytes{extent.content_bytes}), request.offset_bytes, extent.checksum, found);
}

}  // namespace dslaunch::storage
