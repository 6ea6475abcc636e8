#include "launcher/io_measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch {
namespace {

using Steady = std::chrono::steady_clock;

// As offload moves whole extents, a request is several blocks; up to this.
constexpr int64_t kRequestBytesMax = int64_t{8} << 20;

struct Shape {
    explicit Shape(const IoCell& cell)
        : request_bytes(
              std::max(cell.block.value, std::min(cell.block.value * cell.depth, kRequestBytesMax) /
                                             cell.block.value * cell.block.value)),
          requests((cell.block.value * cell.depth + request_bytes - 1) / request_bytes + 2) {}
    int64_t request_bytes;
    int64_t requests;  // in flight: two more than fill the queue
};

double cpu_seconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void require_moved(const BlockFile& file, const IoRequest& request, const IoResult& result) {
    const auto length = static_cast<int64_t>(request.memory.size());
    if (result.moved(length)) return;
    fail(ExitCode::kDisk, "{}: {} of {} at offset {} failed at {}: {}",
         file.path_at(result.failed_bytes), io_direction_name(request.direction),
         to_text(Bytes{length}), request.offset_bytes, result.failed_bytes,
         result.error_number == 0 ? "fewer bytes than asked for, the disk is full or failing"
                                  : errno_text(-result.error_number));
}

// Part of the files, in bytes.
struct Stretch {
    int64_t begin_bytes = 0;
    int64_t end_bytes = 0;
};

// Bytes that were moved within STRETCH.
int64_t move_for(const BackingFiles& files, const IoCell& cell, const Stretch& stretch,
                 std::span<std::byte> memory, const std::function<bool()>& goes_on) {
    const Shape shape(cell);
    const int64_t last_bytes = stretch.end_bytes - shape.request_bytes;
    DSL_CHECK(last_bytes >= stretch.begin_bytes, "{} bytes are less than a request",
              stretch.end_bytes - stretch.begin_bytes);
    const auto file = open_block_file(files, cell.engine,
                                      {cell.block, cell.depth, static_cast<int>(shape.requests)});
    file->register_memory(memory);
    std::deque<std::pair<IoTicket, IoRequest>> in_flight;
    IoRequest next{cell.direction, stretch.begin_bytes, {}};
    const auto submit = [&](std::span<std::byte> place) {
        next.memory = place;
        in_flight.emplace_back(file->submit(next), next);
        next.offset_bytes += shape.request_bytes;
        if (next.offset_bytes > last_bytes) next.offset_bytes = stretch.begin_bytes;
    };
    for (int64_t i = 0; i < shape.requests; ++i)
        submit(memory.subspan(static_cast<size_t>(i * shape.request_bytes),
                              static_cast<size_t>(shape.request_bytes)));
    int64_t moved_bytes = 0;
    while (!in_flight.empty()) {
        auto [ticket, request] = std::move(in_flight.front());
        in_flight.pop_front();
        require_moved(*file, request, ticket.wait());
        moved_bytes += shape.request_bytes;
        if (goes_on()) submit(request.memory);
    }
    return moved_bytes;
}

}  // namespace

Bytes io_measure_bytes(const IoCell& cell) {
    const Shape shape(cell);
    return Bytes{shape.request_bytes * shape.requests};
}

IoFigure measure_io(const BackingFiles& files, const IoCell& cell, std::span<std::byte> memory,
                    Duration duration, const std::function<void()>& check) {
    const double cpu_before = cpu_seconds();
    const auto start = Steady::now();
    const auto bytes = static_cast<double>(
        move_for(files, cell, {0, files.capacity.value},
                 memory.first(static_cast<size_t>(io_measure_bytes(cell).value)), [&] {
                     check();
                     return Steady::now() - start < duration;
                 }));
    const std::chrono::duration<double> seconds = Steady::now() - start;
    return {bytes / seconds.count(), (cpu_seconds() - cpu_before) / bytes * 1e9};
}

IoFigure measure_io_both(const BackingFiles& files, const IoCell& cell, std::span<std::byte> memory,
                         Duration duration, const std::function<void()>& check) {
    const auto length = static_cast<size_t>(io_measure_bytes(cell).value);
    const int64_t middle_bytes = files.capacity.value / 2 / kBlockAlignment * kBlockAlignment;
    IoCell writes = cell, reads = cell;
    writes.direction = IoDirection::kWrite;
    reads.direction = IoDirection::kRead;
    const double cpu_before = cpu_seconds();
    const auto start = Steady::now();
    std::atomic<bool> stops{false};
    auto writer = std::async(std::launch::async, [&] {
        try {
            return move_for(files, writes, {middle_bytes, files.capacity.value},
                            memory.subspan(length, length), [&] { return !stops.load(); });
        } catch (...) {
            stops = true;
            throw;
        }
    });
    int64_t moved_bytes = 0;
    try {
        moved_bytes = move_for(files, reads, {0, middle_bytes}, memory.first(length), [&] {
            check();
            return !stops.load() && Steady::now() - start < duration;
        });
    } catch (...) {
        stops = true;  // the writer is waited for as its future goes
        throw;
    }
    stops = true;
    moved_bytes += writer.get();
    const std::chrono::duration<double> seconds = Steady::now() - start;
    const auto bytes = static_cast<double>(moved_bytes);
    return {bytes / seconds.count(), (cpu_seconds() - cpu_before) / bytes * 1e9};
}

}  // namespace dslaunch
