#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/check.h"
#include "storage/disk/open_block_file.h"
#include "storage/disk/queued_block_file.h"

namespace dslaunch::storage {
namespace {

constexpr int kThreadsMax = 64;

// Reads and writes with pread and pwrite in a pool of threads, one for each piece in flight.
class ThreadBlockFile final : public QueuedBlockFile {
  public:
    ThreadBlockFile(const BackingFiles& files, const QueueLimits& limits);
    ~ThreadBlockFile() override { stop(); }

    void progress() override {}                             // the threads go on by themselves
    void register_memory(std::span<std::byte>) override {}  // pread cannot use it
    [[nodiscard]] BlockFileFacts facts() const override { return facts_of("threads", false); }

  protected:
    [[nodiscard]] uint32_t start(const IoRequest& request) override;
    [[nodiscard]] int64_t await_front(uint32_t entry, int64_t known_bytes) override;
    IoResult finish(uint32_t entry) override;
    void abandon(uint32_t entry) noexcept override;

  private:
    void serve();
    void stop();
    [[nodiscard]] int64_t move(const Piece& piece) const;

    std::mutex mutex_;              // guards table_, is_watched_ and is_stopping_
    std::condition_variable work_;  // notified when a piece can be started, or is_stopping_
    // Notified when a request is finished or nothing is in flight. If is_watched_, also notified
    // after each piece.
    std::condition_variable progress_;
    bool is_watched_ = false;
    bool is_stopping_ = false;
    std::vector<std::thread> threads_;
};

ThreadBlockFile::ThreadBlockFile(const BackingFiles& files, const QueueLimits& limits)
    : QueuedBlockFile(files, limits, std::min(limits.threads_max, kThreadsMax)) {
    try {
        for (int i = 0; i < table_.limits().depth; ++i) threads_.emplace_back([this] { serve(); });
    } catch (...) {
        stop();
        throw;
    }
}

void ThreadBlockFile::stop() {
    {
        std::unique_lock lock(mutex_);
        is_stopping_ = true;
        table_.stop_all();
        const bool idle =
            progress_.wait_for(lock, kIoFarewellMax, [this] { return table_.in_flight() == 0; });
        DSL_CHECK(idle, "{}: the device has not answered for {} s", files_.path_at(0),
                  kIoFarewellMax.count());
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

int64_t ThreadBlockFile::move(const Piece& piece) const {
    const int fd = files_.files[piece.file].fd.get();
    const auto length = static_cast<size_t>(piece.length_bytes);
    const ssize_t moved = piece.direction == IoDirection::kRead
                              ? ::pread(fd, piece.memory, length, piece.file_offset_bytes)
                              : ::pwrite(fd, piece.memory, length, piece.file_offset_bytes);
    return moved < 0 ? -errno : moved;
}

void ThreadBlockFile::serve() {
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
        std::optional<Piece> piece = table_.next();
        if (!piece) {
            work_.wait(lock);
            continue;
        }
        const uint32_t entry = piece->entry;
        while (piece) {
            lock.unlock();
            const int64_t moved = move(*piece);
            lock.lock();
            piece = table_.complete(*piece, moved);
        }
        if (table_.is_finished(entry) || is_watched_ || is_stopping_) progress_.notify_all();
    }
}

uint32_t ThreadBlockFile::start(const IoRequest& request) {
    uint32_t entry = 0;
    int64_t pieces = 0;
    {
        const std::lock_guard lock(mutex_);
        entry = table_.add(request);
        pieces = table_.pieces_left(entry);
    }
    for (int64_t i = 0; i < std::min<int64_t>(pieces, table_.limits().depth); ++i)
        work_.notify_one();
    return entry;
}

int64_t ThreadBlockFile::await_front(uint32_t entry, int64_t known_bytes) {
    std::unique_lock lock(mutex_);
    is_watched_ = true;
    progress_.wait(
        lock, [&] { return table_.front_bytes(entry) > known_bytes || table_.is_finished(entry); });
    is_watched_ = false;
    return table_.front_bytes(entry);
}

IoResult ThreadBlockFile::finish(uint32_t entry) {
    std::unique_lock lock(mutex_);
    progress_.wait(lock, [&] { return table_.is_finished(entry); });
    return table_.take(entry);
}

void ThreadBlockFile::abandon(uint32_t entry) noexcept {
    const std::lock_guard lock(mutex_);
    table_.abandon(entry);
}

}  // namespace

std::unique_ptr<BlockFile> open_thread_file(const BackingFiles& files, const QueueLimits& limits) {
    return std::make_unique<ThreadBlockFile>(files, limits);
}

}  // namespace dslaunch::storage
