#include "storage/swap/extent_store.h"

#include <algorithm>
#include <optional>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::storage {
namespace {

// Computes the XXH3 hash of bytes that come in pieces, and calls BlockFile::progress() between
// them.
class Checksum {
  public:
    // The time spent hashing is added to SPENT.
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

// Returns the memory of PARTS, which is contiguous.
std::span<std::byte> memory_of(std::span<const ExtentStore::Part> parts) {
    const std::span<std::byte> last = parts.back().memory;
    return {parts.front().memory.data(), last.data() + last.size()};
}

}  // namespace

const ExtentStore::Extent& ExtentStore::at(ExtentId extent) const {
    DSL_CHECK(extent.index >= 0 && static_cast<size_t>(extent.index) < extents_.size(),
              "extent {} does not exist; there are {} extents", extent.index, extents_.size());
    return extents_[extent.index];
}

ExtentStore::Extent& ExtentStore::at(ExtentId extent) {
    return const_cast<Extent&>(std::as_const(*this).at(extent));
}

ExtentId ExtentStore::add(std::string name, Bytes length) {
    DSL_CHECK(length.value > 0 && length.value % kBlockAlignment == 0,
              "extent `{}` has {} bytes, which is not a whole number of blocks", name,
              length.value);
    DSL_CHECK(length <= file_.capacity() - Bytes{end_bytes_},
              "no room for extent `{}` of {} bytes in a file of {} bytes", name, length.value,
              file_.capacity().value);
    Extent extent;
    extent.name = std::move(name);
    extent.length_bytes = length.value;
    extent.offset_bytes = std::exchange(end_bytes_, end_bytes_ + length.value);
    extents_.push_back(std::move(extent));
    return {static_cast<int32_t>(extents_.size()) - 1};
}

std::span<ExtentStore::Extent> ExtentStore::extents_of(ExtentId first, int32_t count) {
    DSL_CHECK(count > 0 && first.index >= 0 && first.index + count <= std::ssize(extents_),
              "extents {} to {} are not within the {} extents", first.index, first.index + count,
              extents_.size());
    return std::span(extents_).subspan(static_cast<size_t>(first.index),
                                       static_cast<size_t>(count));
}

int32_t ExtentStore::parts_together(std::span<const Part> parts) const {
    int32_t count = 1;
    for (; count < std::ssize(parts); ++count) {
        const Part& one = parts[count - 1];
        const Part& next = parts[count];
        const bool in_file = next.extent.index == one.extent.index + 1 &&
                             std::ssize(one.memory) == at(one.extent).length_bytes;
        if (!in_file || one.memory.data() + one.memory.size() != next.memory.data()) break;
    }
    return count;
}

ExtentTransfer ExtentStore::read(std::span<const Part> parts, BlockFile* by) {
    if (by == nullptr) by = &file_;
    const auto count = static_cast<int32_t>(parts.size());
    const std::span<Extent> extents = extents_of(parts.front().extent, count);
    for (size_t i = 0; i < parts.size(); ++i) {
        const Extent& extent = extents[i];
        DSL_CHECK(std::ssize(parts[i].memory) == extent.content_bytes,
                  "extent `{}`: the buffer's {} bytes do not match the extent's {} bytes",
                  extent.name, parts[i].memory.size(), extent.content_bytes);
        DSL_CHECK(extent.generation > 0 && !extent.is_writing,
                  "extent `{}` is read before it is written", extent.name);
    }
    const IoRequest request = read_request(extents.front().offset_bytes, memory_of(parts));
    IoTicket ticket = by->submit(request);
    for (Extent& extent : extents) ++extent.readers;
    return {by, std::move(ticket), request, parts.front().extent, count};
}

ExtentTransfer ExtentStore::write(std::span<const Part> parts, BlockFile* by) {
    if (by == nullptr) by = &file_;
    const auto count = static_cast<int32_t>(parts.size());
    const std::span<Extent> extents = extents_of(parts.front().extent, count);
    for (size_t i = 0; i < parts.size(); ++i) {
        const Extent& extent = extents[i];
        DSL_CHECK(!parts[i].memory.empty() && std::ssize(parts[i].memory) <= extent.length_bytes,
                  "extent `{}`: the buffer's {} bytes do not match the extent's {} bytes",
                  extent.name, parts[i].memory.size(), extent.length_bytes);
        DSL_CHECK(extent.readers == 0 && !extent.is_writing,
                  "extent `{}` is written while it is in use", extent.name);
    }
    const IoRequest request = write_request(extents.front().offset_bytes, memory_of(parts));
    IoTicket ticket = by->submit(request);
    for (size_t i = 0; i < parts.size(); ++i) {
        Extent& extent = extents[i];
        extent.is_writing = true;
        extent.content_bytes = std::ssize(parts[i].memory);
        ++extent.generation;
        // Computes the checksum while the device writes.
        Checksum checksum(*by, counters_.write_checksum_time);
        checksum.add(parts[i].memory);
        extent.checksum = checksum.digest();
    }
    return {by, std::move(ticket), request, parts.front().extent, count};
}

void ExtentStore::wait(ExtentTransfer transfer) {
    const IoRequest& request = transfer.request;
    const std::span<Extent> extents = extents_of(transfer.first, transfer.count);
    if (request.direction == IoDirection::kRead) {
        finish_read(extents, transfer);
        return;
    }
    const IoResult result = transfer.ticket.wait();
    if (!result.has_moved(std::ssize(request.memory))) fail_transfer(extents, request, result);
    for (Extent& extent : extents) extent.is_writing = false;
    counters_.written += Bytes{std::ssize(request.memory)};
    ++counters_.writes;
}

// Hashes the bytes that have arrived while the device transfers the rest.
void ExtentStore::finish_read(std::span<Extent> extents, ExtentTransfer& transfer) {
    const IoRequest& request = transfer.request;
    int64_t moved_bytes = 0, begin_bytes = 0;
    std::optional<IoResult> result;
    for (Extent& extent : extents) {
        Checksum checksum(*transfer.by, counters_.read_checksum_time);
        const int64_t end_bytes = begin_bytes + extent.content_bytes;
        for (int64_t hashed_bytes = begin_bytes; hashed_bytes < end_bytes;) {
            if (moved_bytes <= hashed_bytes && !result) {
                const int64_t known_bytes = moved_bytes;
                moved_bytes = transfer.ticket.wait_for_front(known_bytes);
                if (moved_bytes == known_bytes) result = transfer.ticket.wait();
                if (result && !result->has_moved(std::ssize(request.memory)))
                    fail_transfer(extents, request, *result);
            }
            const int64_t until_bytes = result ? end_bytes : std::min(moved_bytes, end_bytes);
            checksum.add(request.memory.subspan(static_cast<size_t>(hashed_bytes),
                                                static_cast<size_t>(until_bytes - hashed_bytes)));
            hashed_bytes = until_bytes;
        }
        if (const uint64_t found = checksum.digest(); found != extent.checksum) {
            // First waits for the end of the transfer, because the caller may free the memory after
            // the error.
            if (!result) static_cast<void>(transfer.ticket.wait());
            fail_checksum(extent, found);
        }
        begin_bytes = end_bytes;
    }
    if (!result) result = transfer.ticket.wait();
    if (!result->has_moved(std::ssize(request.memory))) fail_transfer(extents, request, *result);
    for (Extent& extent : extents) --extent.readers;
    counters_.read += Bytes{std::ssize(request.memory)};
    ++counters_.reads;
}

void ExtentStore::fail_transfer(std::span<const Extent> extents, const IoRequest& request,
                                const IoResult& result) const {
    // The extent in which the transfer stopped.
    const auto end = std::ranges::find_if(extents, [&](const Extent& extent) {
        return result.failed_bytes < extent.offset_bytes + extent.length_bytes;
    });
    const Extent& broken = end == extents.end() ? extents.back() : *end;
    const char* const direction = io_direction_name(request.direction);
    const std::string& path = file_.path_at(result.failed_bytes);
    const std::string where =
        fmt::format("`{}` (generation {}, {} at offset {})", broken.name, broken.generation,
                    to_text(Bytes{broken.content_bytes}), broken.offset_bytes);
    if (result.error_number == 0)
        fail(ExitCode::kDisk,
             "{}: incomplete {} of {}: expected {} bytes, found {}, ending at offset {}: the file "
             "was truncated, or its disk is full or failing; see the kernel's log (dmesg)",
             path, direction, where, request.memory.size(), result.moved_bytes,
             result.failed_bytes);
    fail(ExitCode::kDisk,
         "{}: {} of {} failed at offset {}: {}: the disk is full, failing or gone; free some "
         "space, see the kernel's log (dmesg), or set another nvme_path",
         path, direction, where, result.failed_bytes, errno_text(-result.error_number));
}

void ExtentStore::fail_checksum(const Extent& extent, uint64_t found) const {
    fail(ExitCode::kDisk,
         "{}: `{}` (generation {}, {} at offset {}) differs from what was written: expected XXH3 "
         "{:016x}, found {:016x}: the disk lost, misplaced or changed a block, or another program "
         "wrote to the file. The data was not used; do not train on this disk",
         file_.path_at(extent.offset_bytes), extent.name, extent.generation,
         to_text(Bytes{extent.content_bytes}), extent.offset_bytes, extent.checksum, found);
}

}  // namespace dslaunch::storage
