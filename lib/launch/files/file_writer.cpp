#include "launch/files/file_writer.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/fd.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::chrono::hours kLongWork{24};

}  // namespace

struct FileWriter::Queue {
    struct Item {
        Work work;
        size_t bytes;
    };

    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Item> items;  // while `busy`, the first one is running
    size_t bytes = 0;
    size_t dropped_bytes = 0;
    steady_clock::time_point progress_at = steady_clock::now();  // when the last work ended, or
                                                                 // when the first work after a
                                                                 // pause began
    milliseconds stood_still{};                                  // the longest work so far
    int failure = 0;
    bool failure_taken = false;
    bool started = false;
    bool over = false;
    UniqueFd idle{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};  // readable: nothing is queued

    void run() {
        std::unique_lock lock(mutex);
        for (;;) {
            changed.wait(lock, [this] { return over || !items.empty(); });
            if (over) return;
            Item& item = items.front();
            lock.unlock();
            const int status = item.work();
            item.work = nullptr;  // freeing what it owns may be slow too
            lock.lock();
            if (status != 0 && failure == 0) failure = -status;
            const auto now = steady_clock::now();
            stood_still =
                std::max(stood_still, std::chrono::floor<milliseconds>(now - progress_at));
            progress_at = now;
            bytes -= item.bytes;
            items.pop_front();
            if (items.empty()) ::eventfd_write(idle.get(), 1);
        }
    }
};

FileWriter::FileWriter(std::string place)
    : place_(std::move(place)), queue_(std::make_shared<Queue>()) {}

FileWriter::~FileWriter() {
    const std::lock_guard lock(queue_->mutex);
    queue_->over = true;
    queue_->changed.notify_one();
}

bool FileWriter::post(Work work, size_t bytes) {
    {
        const std::lock_guard lock(queue_->mutex);
        const size_t cost = queue_->bytes + bytes + kWorkBytes * (queue_->items.size() + 1);
        if (bytes > 0 && cost > kKeptBytesMax) {
            queue_->dropped_bytes += bytes;
            return false;
        }
        if (queue_->items.empty()) {
            queue_->progress_at = steady_clock::now();
            eventfd_t idle = 0;
            static_cast<void>(::eventfd_read(queue_->idle.get(), &idle));
        }
        queue_->items.push_back({std::move(work), bytes});
        queue_->bytes += bytes;
        queue_->changed.notify_one();
    }
    if (std::exchange(queue_->started, true)) return true;
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        // The thread is detached: a disk that never answers must not delay the end of the process.
        std::thread([queue = queue_] { queue->run(); }).detach();
    } catch (const std::system_error& error) {
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        fail(ExitCode::kSetup, "cannot start a thread to write {}: {}", place_, error.what());
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return true;
}

int FileWriter::take_failure() {
    const std::lock_guard lock(queue_->mutex);
    if (queue_->failure == 0 || std::exchange(queue_->failure_taken, true)) return 0;
    return queue_->failure;
}

std::string FileWriter::take_news() {
    const std::lock_guard lock(queue_->mutex);
    const auto still = steady_clock::now() - queue_->progress_at;
    if (!queue_->items.empty() && still > kStandsStill) {
        if (std::exchange(has_told_standstill_, true)) return "";
        return fmt::format(
            "dslaunch: warning: {} has accepted no data for {} s: its file system does not answer, "
            "or nobody reads its pipe; the job continues, and up to {} MiB are kept for it",
            place_, std::chrono::floor<std::chrono::seconds>(still).count(), kKeptBytesMax >> 20);
    }
    has_told_standstill_ = false;
    if (queue_->dropped_bytes == 0) return "";
    return fmt::format(
        "dslaunch: warning: {} bytes for {} are lost: it accepted no data for {:.0f} s, and more "
        "than {} MiB were waiting",
        std::exchange(queue_->dropped_bytes, 0), place_,
        std::chrono::duration<double>(queue_->stood_still).count(), kKeptBytesMax >> 20);
}

bool FileWriter::wait(milliseconds standstill_max, int wake_fd, milliseconds all_max) {
    const auto limit = steady_clock::now() + all_max;
    for (;;) {
        milliseconds left;
        {
            const std::lock_guard lock(queue_->mutex);
            if (queue_->items.empty()) return true;
            const auto end = std::min(queue_->progress_at + standstill_max, limit);
            left = std::chrono::ceil<milliseconds>(end - steady_clock::now());
            if (left.count() <= 0) return false;
        }
        pollfd entries[2] = {{queue_->idle.get(), POLLIN, 0}, {wake_fd, POLLIN, 0}};
        // Work may be completed during this wait, so the time without progress is computed again.
        const int timeout = static_cast<int>(std::min(left, kStandsStill).count());
        if (::poll(entries, 2, timeout) > 0 && entries[1].revents != 0) return false;
    }
}

void FileWriter::run_and_wait(const std::function<void()>& work, int wake_fd,
                              std::string_view doing) {
    const auto error = std::make_shared<std::exception_ptr>();
    const auto run = [work, error] {
        try {
            work();
        } catch (const Error&) {
            *error = std::current_exception();
        }
        return 0;
    };
    static_cast<void>(post(run, 0));
    if (!wait(kLongWork, wake_fd)) fail(ExitCode::kInterrupted, "interrupted while {}", doing);
    if (*error != nullptr) std::rethrow_exception(*error);
}

size_t FileWriter::kept_bytes() const {
    const std::lock_guard lock(queue_->mutex);
    return queue_->bytes;
}

}  // namespace dslaunch::launch
