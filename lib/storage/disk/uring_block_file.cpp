#include <liburing.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "storage/disk/open_block_file.h"
#include "storage/disk/queued_block_file.h"

namespace dslaunch::storage {
namespace {

constexpr int kUringDepthMax = 4096;
constexpr int64_t kBufferBytes = int64_t{1} << 30;  // the kernel's largest registered buffer

constexpr int kRefusalsMax = 10'000;
constexpr std::chrono::milliseconds kRefusalPause{1};

std::string memlock_text() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return "unlimited";
    return to_text(Bytes{static_cast<int64_t>(limit.rlim_cur)});
}

// Uses registered files and memory, and one system call for many pieces. Makes progress only in the
// owner's thread, which collects the completions.
class UringBlockFile final : public QueuedBlockFile {
  public:
    UringBlockFile(const BackingFiles& files, const QueueLimits& limits);
    ~UringBlockFile() override;
    // Must be called first. Returns 0 or a negative errno.
    [[nodiscard]] int set_up();

    void progress() override;
    void register_memory(std::span<std::byte> arena) override;
    [[nodiscard]] BlockFileFacts facts() const override {
        return facts_of("io_uring", !arena_.empty());
    }

  protected:
    [[nodiscard]] uint32_t start(const IoRequest& request) override;
    [[nodiscard]] int64_t await_front(uint32_t entry, int64_t known_bytes) override;
    IoResult finish(uint32_t entry) override;
    void abandon(uint32_t entry) noexcept override { table_.abandon(entry); }

  private:
    void own();
    void fill();
    void queue(uint32_t index);
    void reap();
    void wait_for_one();
    [[nodiscard]] int buffer_of(const Piece& piece) const;  // -1 if its memory is not registered

    io_uring ring_{};
    bool is_set_up_ = false;
    bool is_disabled_ = false;  // true until the owner enables the ring
    std::thread::id owner_;
    int refusals_ = 0;            // refusals in a row by the queue itself
    std::vector<Piece> pieces_;   // [depth], by index in the submission queue
    std::vector<uint32_t> free_;  // indices without a piece
    std::span<std::byte> arena_;  // registered with the kernel in parts of kBufferBytes
};

UringBlockFile::UringBlockFile(const BackingFiles& files, const QueueLimits& limits)
    : QueuedBlockFile(files, limits, kUringDepthMax) {
    pieces_.resize(static_cast<size_t>(table_.limits().depth));
    for (size_t i = pieces_.size(); i > 0; --i) free_.push_back(static_cast<uint32_t>(i - 1));
}

int UringBlockFile::set_up() {
    // Tries three modes of the ring, the newest one first. In the mode of Linux 6.1, the kernel
    // processes completions only when the owner asks for them. In the mode of Linux 5.19, it
    // processes them at the owner's next system call. In the oldest mode, it processes them at
    // once. The mode of Linux 6.1 binds the ring to the thread that enables it, so the owner
    // enables it later.
    constexpr unsigned kAttempts[] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                          IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_R_DISABLED,
                                      IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, 0};
    int status = 0;
    for (const unsigned flags : kAttempts) {
        io_uring_params parameters{};
        parameters.flags = flags;
        status = ::io_uring_queue_init_params(static_cast<unsigned>(table_.limits().depth), &ring_,
                                              &parameters);
        is_disabled_ = (flags & IORING_SETUP_R_DISABLED) != 0;
        if (status != -EINVAL) break;
    }
    if (status != 0) return status;
    is_set_up_ = true;
    std::vector<int> fds;
    for (const BackingFile& file : files_.files) fds.push_back(file.fd.get());
    return ::io_uring_register_files(&ring_, fds.data(), static_cast<unsigned>(fds.size()));
}

UringBlockFile::~UringBlockFile() {
    if (!is_set_up_) return;
    table_.stop_all();
    const auto end = std::chrono::steady_clock::now() + kIoFarewellMax;
    while (table_.in_flight() > 0) {
        DSL_CHECK(std::chrono::steady_clock::now() < end,
                  "{}: the device has not answered for {} s", files_.path_at(0),
                  kIoFarewellMax.count());
        __kernel_timespec second{.tv_sec = 1, .tv_nsec = 0};
        io_uring_cqe* ignored = nullptr;
        static_cast<void>(
            ::io_uring_submit_and_wait_timeout(&ring_, &ignored, 1, &second, nullptr));
        reap();
    }
    ::io_uring_queue_exit(&ring_);
}

void UringBlockFile::register_memory(std::span<std::byte> arena) {
    DSL_CHECK(owner_ == std::thread::id{} && arena_.empty(),
              "memory must be registered once, before the first request");
    std::vector<iovec> buffers;
    for (size_t at = 0; at < arena.size(); at += kBufferBytes)
        buffers.push_back({arena.data() + at, std::min<size_t>(kBufferBytes, arena.size() - at)});
    const int status =
        ::io_uring_register_buffers(&ring_, buffers.data(), static_cast<unsigned>(buffers.size()));
    if (status == 0) {
        arena_ = arena;
        return;
    }
    log_warn("storage",
             "{}: {} of memory cannot be registered with io_uring: {}; RLIMIT_MEMLOCK is {} "
             "(ulimit -l). Each transfer pins its pages again, which costs processor time",
             files_.path_at(0), to_text(Bytes{static_cast<int64_t>(arena.size())}),
             errno_text(-status), memlock_text());
}

void UringBlockFile::own() {
    if (owner_ == std::this_thread::get_id()) return;
    DSL_CHECK(owner_ == std::thread::id{}, "a block file is used by a second thread");
    owner_ = std::this_thread::get_id();
    if (!is_disabled_) return;
    // liburing 2.3 declares io_uring_enable_rings() but does not export it.
    const int status = ::io_uring_register(static_cast<unsigned>(ring_.ring_fd),
                                           IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
    if (status < 0)
        fail(ExitCode::kSetup, "{}: io_uring cannot be started: {}", files_.path_at(0),
             errno_text(-status));
}

int UringBlockFile::buffer_of(const Piece& piece) const {
    const auto begin = piece.memory - arena_.data();
    const auto end = begin + piece.length_bytes;
    if (arena_.empty() || begin < 0 || end > static_cast<int64_t>(arena_.size())) return -1;
    const int64_t buffer = begin / kBufferBytes;
    return buffer == (end - 1) / kBufferBytes ? static_cast<int>(buffer) : -1;
}

void UringBlockFile::queue(uint32_t index) {
    const Piece& piece = pieces_[index];
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    DSL_CHECK(entry != nullptr, "the submission queue is smaller than the depth");
    const auto length = static_cast<unsigned>(piece.length_bytes);
    const auto offset = static_cast<uint64_t>(piece.file_offset_bytes);
    const int buffer = buffer_of(piece);
    const bool reads = piece.direction == IoDirection::kRead;
    if (buffer >= 0 && reads) {
        ::io_uring_prep_read_fixed(entry, piece.file, piece.memory, length, offset, buffer);
    } else if (buffer >= 0) {
        ::io_uring_prep_write_fixed(entry, piece.file, piece.memory, length, offset, buffer);
    } else if (reads) {
        ::io_uring_prep_read(entry, piece.file, piece.memory, length, offset);
    } else {
        ::io_uring_prep_write(entry, piece.file, piece.memory, length, offset);
    }
    ::io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    ::io_uring_sqe_set_data64(entry, index);
}

void UringBlockFile::fill() {
    while (!free_.empty()) {
        const auto piece = table_.next();
        if (!piece) return;
        const uint32_t index = free_.back();
        free_.pop_back();
        pieces_[index] = *piece;
        queue(index);
    }
}

void UringBlockFile::reap() {
    unsigned head = 0;
    unsigned seen = 0;
    io_uring_cqe* entry = nullptr;
    io_uring_for_each_cqe(&ring_, head, entry) {
        ++seen;
        const auto index = static_cast<uint32_t>(::io_uring_cqe_get_data64(entry));
        if (const auto rest = table_.complete(pieces_[index], entry->res)) {
            pieces_[index] = *rest;
            queue(index);
        } else {
            free_.push_back(index);
        }
    }
    ::io_uring_cq_advance(&ring_, seen);
}

void UringBlockFile::wait_for_one() {
    const int status = ::io_uring_submit_and_wait(&ring_, 1);
    reap();
    // EAGAIN and EBUSY: the kernel has too little memory for requests, or wants us to collect
    // completions first.
    const bool passing = status == -EINTR || status == -EAGAIN || status == -EBUSY;
    refusals_ = status < 0 && status != -EINTR ? refusals_ + 1 : 0;
    if (status >= 0 || (passing && refusals_ < kRefusalsMax)) {
        if (refusals_ > 0) std::this_thread::sleep_for(kRefusalPause);
        return;
    }
    fail(ExitCode::kSetup, "{}: io_uring refuses requests: {}", files_.path_at(0),
         errno_text(-status));
}

void UringBlockFile::progress() {
    if (owner_ == std::thread::id{}) return;
    own();
    fill();
    if (::io_uring_sq_ready(&ring_) > 0 ||
        (IO_URING_READ_ONCE(*ring_.sq.kflags) & IORING_SQ_TASKRUN) != 0) {
        static_cast<void>(::io_uring_submit_and_get_events(&ring_));
    }
    reap();
    fill();
    if (::io_uring_sq_ready(&ring_) > 0) static_cast<void>(::io_uring_submit(&ring_));
}

uint32_t UringBlockFile::start(const IoRequest& request) {
    own();
    const uint32_t entry = table_.add(request);
    progress();
    return entry;
}

int64_t UringBlockFile::await_front(uint32_t entry, int64_t known_bytes) {
    own();
    progress();
    while (table_.front_bytes(entry) <= known_bytes && !table_.is_finished(entry)) {
        fill();
        wait_for_one();
    }
    return table_.front_bytes(entry);
}

IoResult UringBlockFile::finish(uint32_t entry) {
    own();
    reap();
    while (!table_.is_finished(entry)) {
        fill();
        wait_for_one();
    }
    progress();
    return table_.take(entry);
}

}  // namespace

std::unique_ptr<BlockFile> open_uring_file(const BackingFiles& files, const QueueLimits& limits,
                                           int& error_number) {
    auto file = std::make_unique<UringBlockFile>(files, limits);
    error_number = file->set_up();
    if (error_number != 0) return nullptr;
    return file;
}

}  // namespace dslaunch::storage
