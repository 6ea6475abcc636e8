#include "launcher/io/io_measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::launcher {
namespace {

using Steady = std::chrono::steady_clock;

// The largest request. A request is several blocks, for offload moves whole extents.
constexpr int64_t kRequestBytesMax = int64_t{8} << 20;

struct Shape {
    explicit Shape(const IoCell& cell)
        : request_bytes(
              std::max(cell.block.value, std::min(cell.block.value * cell.depth, kRequestBytesMax) /
                                             cell.block.value * cell.block.value)),
          requests((cell.block.value * cell.depth + request_bytes - 1) / request_bytes + 2) {}
    int64_t request_bytes;
    int64_t requests;  // in flight: two more than the queue holds
};

double cpu_seconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void require_moved(const storage::BlockFile& file, const storage::IoRequest& request,
                   const storage::IoResult& result) {
    const auto length = static_cast<int64_t>(request.memory.size());
    if (result.moved(length)) return;
    fail(ExitCode::kDisk, "{}: {} of {} at offset {} failed at {}: {}",
         file.path_at(result.failed_bytes), storage::io_direction_name(request.direction),
         to_text(Bytes{length}), request.offset_bytes, result.failed_bytes,
         result.error_number == 0 ? "fewer bytes than asked for, the disk is full or failing"
                                  : errno_text(-result.error_number));
}

// Part of the files, in bytes.
struct Stretch {
    int64_t begin_bytes = 0;
    int64_t end_bytes = 0;
};

// Moves bytes within STRETCH while GOES_ON returns true; made and used by one thread. Construction
// and destruction are separate from run(), so that they are not measured.
class Mover {
  public:
    Mover(const storage::BackingFiles& files, const IoCell& cell, const Stretch& stretch,
          std::span<std::byte> memory)
        : shape_(cell),
          stretch_(stretch),
          memory_(memory),
          next_{cell.direction, stretch.begin_bytes, {}},
          file_(storage::open_block_file(
              files, cell.engine, {cell.block, cell.depth, static_cast<int>(shape_.requests)})) {
        DSL_CHECK(stretch.end_bytes - stretch.begin_bytes >= shape_.request_bytes,
                  "{} bytes are less than a request", stretch.end_bytes - stretch.begin_bytes);
        file_->register_memory(memory);
    }
    // Returns the number of bytes moved.
    int64_t run(const std::function<bool()>& goes_on) {
        for (int64_t i = 0; i < shape_.requests; ++i)
            submit(memory_.subspan(static_cast<size_t>(i * shape_.request_bytes),
                                   static_cast<size_t>(shape_.request_bytes)));
        int64_t moved_bytes = 0;
        while (!in_flight_.empty()) {
            auto [ticket, request] = std::move(in_flight_.front());
            in_flight_.pop_front();
            require_moved(*file_, request, ticket.wait());
            moved_bytes += shape_.request_bytes;
            if (goes_on()) submit(request.memory);
        }
        return moved_bytes;
    }

  private:
    void submit(std::span<std::byte> place) {
        next_.memory = place;
        in_flight_.emplace_back(file_->submit(next_), next_);
        next_.offset_bytes += shape_.request_bytes;
        if (next_.offset_bytes > stretch_.end_bytes - shape_.request_bytes)
            next_.offset_bytes = stretch_.begin_bytes;
    }

    Shape shape_;
    Stretch stretch_;
    std::span<std::byte> memory_;
    storage::IoRequest next_;
    std::unique_ptr<storage::BlockFile> file_;
    std::deque<std::pair<storage::IoTicket, storage::IoRequest>> in_flight_;
};

}  // namespace

Bytes io_measure_bytes(const IoCell& cell) {
    const Shape shape(cell);
    return Bytes{shape.request_bytes * shape.requests};
}

IoFigure measure_io(const storage::BackingFiles& files, const IoCell& cell,
                    std::span<std::byte> memory, Duration duration,
                    const std::function<void()>& check) {
    Mover mover(files, cell, {0, files.capacity.value},
                memory.first(static_cast<size_t>(io_measure_bytes(cell).value)));
    const double cpu_before = cpu_seconds();
    const auto start = Steady::now();
    const auto bytes = static_cast<double>(mover.run([&] {
        check();
        return Steady::now() - start < duration;
    }));
    const std::chrono::duration<double> seconds = Steady::now() - start;
    return {bytes / seconds.count(), (cpu_seconds() - cpu_before) / bytes * 1e9};
}

IoFigure measure_io_both(const storage::BackingFiles& files, const IoCell& cell,
                         std::span<std::byte> memory, Duration duration,
                         const std::function<void()>& check) {
    const auto length = static_cast<size_t>(io_measure_bytes(cell).value);
    const int64_t middle_bytes =
        files.capacity.value / 2 / storage::kBlockAlignment * storage::kBlockAlignment;
    IoCell writes = cell, reads = cell;
    writes.direction = storage::IoDirection::kWrite;
    reads.direction = storage::IoDirection::kRead;
    Mover reader(files, reads, {0, middle_bytes}, memory.first(length));
    std::atomic<bool> stops{false};
    std::latch ready{1};
    auto writer = std::async(std::launch::async, [&]() -> int64_t {
        std::optional<Mover> mover;
        try {
            mover.emplace(files, writes, Stretch{middle_bytes, files.capacity.value},
                          memory.subspan(length, length));
        } catch (...) {
            stops = true;
            ready.count_down();
            throw;
        }
        ready.count_down();
        try {
            return mover->run([&] { return !stops.load(); });
        } catch (...) {
            stops = true;
            throw;
        }
    });
    ready.wait();
    const double cpu_before = cpu_seconds();
    const auto start = Steady::now();
    int64_t moved_bytes = 0;
    try {
        moved_bytes = reader.run([&] {
            check();
            return !stops.load() && Steady::now() - start < duration;
        });
    } catch (...) {
        stops = true;  // the future's destructor waits for the writer
        throw;
    }
    stops = true;
    moved_bytes += writer.get();
    const std::chrono::duration<double> seconds = Steady::now() - start;
    const auto bytes = static_cast<double>(moved_bytes);
    return {bytes / seconds.count(), (cpu_seconds() - cpu_before) / bytes * 1e9};
}

}  // namespace dslaunch::launcher
