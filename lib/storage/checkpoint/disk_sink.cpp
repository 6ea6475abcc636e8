#include "storage/checkpoint/disk_sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/machine/disk_room.h"

namespace dslaunch::storage {
namespace {

constexpr size_t kAlignment = 4096;

// Switches direct I/O off, because a size or an offset does not allow it: writes then use the page
// cache.
void write_through_cache(int fd) {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags >= 0) static_cast<void>(::fcntl(fd, F_SETFL, flags & ~O_DIRECT));
}

// Returns 0 or an errno.
int write_at(int fd, std::span<const std::byte> bytes, int64_t offset) {
    while (!bytes.empty()) {
        const ssize_t count = ::pwrite(fd, bytes.data(), bytes.size(), offset);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EINVAL && (::fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
            write_through_cache(fd);
            continue;
        }
        if (count <= 0) return count < 0 ? errno : EIO;
        offset += count;
        bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return 0;
}

}  // namespace

DiskSink::DiskSink(std::string path, UniqueFd fd, Bytes bytes)
    : path_(std::move(path)), fd_(std::move(fd)), need_(bytes) {
    // EOPNOTSUPP: the file system cannot reserve room; a write will report a full disk.
    if (bytes.value > 0 && ::fallocate(fd_.get(), 0, 0, bytes.value) != 0 && errno != EOPNOTSUPP)
        give_up("reserve space", errno);
    arena_ = IoArena(memory(bytes));
}

Bytes DiskSink::memory(Bytes bytes) {
    const auto page = static_cast<int64_t>(kAlignment);
    return {std::clamp(round_up(bytes.value, page), page,
                       kSinkBufferBytes * static_cast<int64_t>(kSinkBuffers))};
}

DiskSink::~DiskSink() {
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
        queue_.clear();
    }
    changed_.notify_all();
    threads_.clear();
}

void DiskSink::give_up(const char* doing, int error_number) const {
    struct stat own {};
    Bytes free = disk_space(fd_.get()).value_or(DiskSpace{}).free;
    // The blocks of the unfinished file become free when it is removed.
    if (::fstat(fd_.get(), &own) == 0) free += Bytes{own.st_blocks * 512};
    fail_file({path_, doing, error_number, need_, free});
}

std::span<std::byte> DiskSink::buffer(size_t index) const {
    const size_t begin = std::min(index * kSinkBufferBytes, arena_.bytes().size());
    return arena_.bytes().subspan(
        begin, std::min<size_t>(kSinkBufferBytes, arena_.bytes().size() - begin));
}

void DiskSink::write(std::span<const std::byte> bytes) {
    DSL_CHECK(!is_synced_, "{}: was written to after sync()", path_);
    while (!bytes.empty()) {
        const std::span<std::byte> into = buffer(filling_).subspan(filled_bytes_);
        const size_t taken = std::min(into.size(), bytes.size());
        std::memcpy(into.data(), bytes.data(), taken);
        filled_bytes_ += taken;
        bytes = bytes.subspan(taken);
        if (taken == into.size()) send();
    }
}

// Gives the filled buffer to the threads and waits until the next one is free.
void DiskSink::send() {
    std::unique_lock lock(mutex_);
    for (size_t i = threads_.size(); i < kSinkThreads; ++i)
        threads_.emplace_back([this] { run(); });
    busy_[filling_] = true;
    queue_.push_back({filling_, written_bytes_, filled_bytes_});
    written_bytes_ += static_cast<int64_t>(filled_bytes_);
    filled_bytes_ = 0;
    changed_.notify_all();
    // Skips buffers that do not exist: a file smaller than a buffer has only one.
    do {
        filling_ = (filling_ + 1) % kSinkBuffers;
    } while (buffer(filling_).empty());
    changed_.wait(lock, [&] { return !busy_[filling_] || error_number_ != 0; });
    if (error_number_ != 0) give_up("write", error_number_);
}

void DiskSink::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return is_stopping_ || !queue_.empty(); });
        if (is_stopping_) return;
        const Piece piece = queue_.front();
        queue_.pop_front();
        lock.unlock();
        const int status = write_piece(piece);
        lock.lock();
        busy_[piece.buffer] = false;
        if (error_number_ == 0) error_number_ = status;
        changed_.notify_all();
    }
}

int DiskSink::write_piece(const Piece& piece) {
    return write_at(fd_.get(), buffer(piece.buffer).first(piece.length_bytes), piece.offset_bytes);
}

void DiskSink::await_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
        return std::none_of(busy_.begin(), busy_.end(), [](bool busy) { return busy; });
    });
    if (error_number_ != 0) give_up("write", error_number_);
}

void DiskSink::sync() {
    DSL_CHECK(!is_synced_, "{}: synced twice", path_);
    is_synced_ = true;
    // Aligned bytes bypass the page cache; the few bytes after them are written through it.
    const size_t aligned = filled_bytes_ / kAlignment * kAlignment;
    const std::span<const std::byte> rest = buffer(filling_).first(filled_bytes_);
    int status = write_at(fd_.get(), rest.first(aligned), written_bytes_);
    await_all();
    if (status == 0 && aligned < rest.size()) {
        write_through_cache(fd_.get());
        status = write_at(fd_.get(), rest.subspan(aligned),
                          written_bytes_ + static_cast<int64_t>(aligned));
    }
    if (status != 0) give_up("write", status);
    const int64_t length = written_bytes_ + static_cast<int64_t>(rest.size());
    if (length != need_.value && ::ftruncate(fd_.get(), length) != 0) give_up("truncate", errno);
    if (::fsync(fd_.get()) != 0) give_up("flush", errno);
    // Some network file systems report a full disk only here.
    if (::close(fd_.release()) != 0 && errno != EINTR)
        fail_file({path_, "close", errno, need_, {}});
}

}  // namespace dslaunch::storage
