#include "launcher/io_measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <deque>
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

}  // namespace

Bytes io_measure_bytes(const IoCell& cell) {
    const Shape shape(cell);
    return Bytes{shape.request_bytes * shape.requests};
}

IoFigure measure_io(const BackingFiles& files, const IoCell& cell, std::span<std::byte> memory,
                    Duration duration, const std::function<void()>& check) {
    const Shape shape(cell);
    memory = memory.first(static_cast<size_t>(io_measure_bytes(cell).value));
    const int64_t last_bytes = files.capacity.value - shape.request_bytes;
    DSL_CHECK(last_bytes >= 0, "a file of {} is smaller than a request", files.capacity.value);
    const auto file = open_block_file(files, cell.engine,
                                      {cell.block, cell.depth, static_cast<int>(shape.requests)});
    file->register_memory(memory);
    std::deque<std::pair<IoTicket, IoRequest>> in_flight;
    IoRequest next{cell.direction, 0, {}};
    const auto submit = [&](std::span<std::byte> place) {
        next.memory = place;
        in_flight.emplace_back(file->submit(next), next);
        next.offset_bytes += shape.request_bytes;
        if (next.offset_bytes > last_bytes) next.offset_bytes = 0;
    };
    const double cpu_before = cpu_seconds();
    const auto start = Steady::now();
    for (int64_t i = 0; i < shape.requests; ++i)
        submit(memory.subspan(static_cast<size_t>(i * shape.request_bytes),
                              static_cast<size_t>(shape.request_bytes)));
    int64_t moved_bytes = 0;
    while (!in_flight.empty()) {
        auto [ticket, request] = std::move(in_flight.front());
        in_flight.pop_front();
        require_moved(*file, request, ticket.wait());
        moved_bytes += shape.request_bytes;
        check();
        if (Steady::now() - start < duration) submit(request.memory);
    }
    const std::chrono::duration<double> seconds = Steady::now() - start;
    const auto bytes = static_cast<double>(moved_bytes);
    return {bytes / seconds.count(), (cpu_seconds() - cpu_before) / bytes * 1e9};
}

}  // namespace dslaunch
