// Measures one figure of a disk: the rate at which a block file moves bytes with one setting, and
// the processor time that this takes. Threads: the thread of the caller, and the threads of the
// engine.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <deque>
#include <future>
#include <latch>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/process/spawn.h"
#include "launcher/io/io_bench.h"

namespace dslaunch::launcher {
namespace {

using Steady = std::chrono::steady_clock;

// The largest request. A request spans several blocks, because offload moves whole extents.
constexpr int64_t kRequestBytesMax = int64_t{8} << 20;

struct Shape {
    explicit Shape(const IoCell& cell)
        : request_bytes(
              std::max(cell.block.value, std::min(cell.block.value * cell.depth, kRequestBytesMax) /
                                             cell.block.value * cell.block.value)),
          requests((cell.block.value * cell.depth + request_bytes - 1) / request_bytes + 2) {}
    int64_t request_bytes;
    int64_t requests;  // requests in flight: two more than fit in the queue
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
    if (result.has_moved(length)) return;
    fail(ExitCode::kDisk, "{}: {} of {} at offset {} failed at {}: {}",
         file.path_at(result.failed_bytes), storage::io_direction_name(request.direction),
         to_text(Bytes{length}), request.offset_bytes, result.failed_bytes,
         result.error_number == 0
             ? "fewer bytes were moved than requested; the disk is full or failing"
             : errno_text(-result.error_number));
}

// A part of the files, in bytes.
struct Stretch {
    int64_t begin_bytes = 0;
    int64_t end_bytes = 0;
};

// Moves bytes within STRETCH while GOES_ON returns true. One thread constructs and uses it.
// Construction and destruction are separate from run(), so that they are not measured.
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
                  "the measured part of the file has {} bytes, which is less than one request",
                  stretch.end_bytes - stretch.begin_bytes);
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

constexpr size_t kOutputBytesMax = 1 << 20;
constexpr int kCheckMs = 20;

std::vector<std::string> command_for(const FioRequest& request) {
    const double seconds = std::chrono::duration<double>(request.duration).count();
    std::vector<std::string> command = {
        request.program,
        "--filename=" + request.file,
        fmt::format("--ioengine={}", request.engine),
        fmt::format("--bs={}", request.cell.block.value),
        fmt::format("--iodepth={}", request.cell.depth),
        fmt::format("--runtime={}ms", static_cast<int64_t>(seconds * 1000)),
        "--time_based",
        "--direct=1",
        "--allow_file_create=0",
        "--thread",
        "--gtod_reduce=1",
        "--group_reporting",
        "--output-format=json"};
    if (request.engine == "io_uring") {
        command.emplace_back("--fixedbufs=1");
        command.emplace_back("--registerfiles=1");
    }
    const auto add_job = [&](storage::IoDirection direction, int64_t begin_bytes,
                             int64_t length_bytes) {
        const char* const name = storage::io_direction_name(direction);
        command.insert(command.end(), {fmt::format("--name={}", name), fmt::format("--rw={}", name),
                                       fmt::format("--offset={}", begin_bytes),
                                       fmt::format("--size={}", length_bytes)});
    };
    const int64_t middle_bytes =
        request.length.value / 2 / storage::kBlockAlignment * storage::kBlockAlignment;
    if (request.both) {
        add_job(storage::IoDirection::kRead, 0, middle_bytes);
        add_job(storage::IoDirection::kWrite, middle_bytes, request.length.value - middle_bytes);
    } else {
        add_job(request.cell.direction, 0, request.length.value);
    }
    return command;
}

// A started program. The destructor kills it if it still runs.
class Child {
  public:
    explicit Child(pid_t pid) : pid_(pid) {}
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        if (pid_ <= 0) return;
        ::kill(-pid_, SIGKILL);  // kills the child's whole process group
        launch::wait_for_end(pid_);
    }
    // Returns the child's exit code. The child has closed its output by this time, so it ends soon.
    int wait() { return launch::wait_for_end(std::exchange(pid_, 0)); }

  private:
    pid_t pid_;
};

// Returns all output of the child, up to the point where the child closes the pipe.
std::string read_output(int fd, const std::function<void()>& check) {
    std::string output;
    char block[65536];
    for (;;) {
        pollfd ready{fd, POLLIN, 0};
        const int count = ::poll(&ready, 1, kCheckMs);
        check();
        if (count <= 0) continue;
        const ssize_t length = ::read(fd, block, sizeof(block));
        if (length < 0 && errno == EINTR) continue;
        if (length <= 0) return output;
        output.append(block, static_cast<size_t>(length));
        if (output.size() > kOutputBytesMax)
            fail(ExitCode::kSetup, "the output of fio is too long");
    }
}

double number_at(const nlohmann::json& object, const char* name) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_number())
        fail(ExitCode::kSetup, "fio's JSON has no number `{}`; fio 3 is required", name);
    return found->get<double>();
}

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

std::optional<std::string> find_fio() {
    const std::string path = launch::find_program("fio", launch::own_environment(), ".");
    return path.empty() ? std::nullopt : std::optional(path);
}

IoFigure run_fio(const FioRequest& request, const std::function<void()>& check) {
    Pipe output = make_pipe();
    Pipe errors = make_pipe();
    launch::SpawnRequest spawning;
    spawning.command = command_for(request);
    // fio's memory is in huge pages, as in measure_io(); otherwise the comparison would measure
    // page sizes.
    launch::set_variable(spawning.environment, "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    spawning.stdout_fd = output.write_end.get();
    spawning.stderr_fd = errors.write_end.get();
    spawning.die_with_parent = true;
    const launch::SpawnResult started = launch::spawn(spawning);
    if (!started.error.empty()) fail(ExitCode::kSetup, "fio: {}", started.error);
    Child child(started.pid);
    output.write_end.reset();
    errors.write_end.reset();
    const std::string json = read_output(output.read_end.get(), check);
    const std::string said = read_output(errors.read_end.get(), check);
    const int code = child.wait();
    if (code != 0)
        fail(ExitCode::kSetup, "fio ({}) ended with status {}: {}", request.engine, code,
             printable(said.substr(0, said.find('\n'))));
    if (request.both)
        return parse_fio(json, {storage::IoDirection::kRead, storage::IoDirection::kWrite});
    return parse_fio(json, {request.cell.direction});
}

IoFigure parse_fio(const std::string& json,
                   std::initializer_list<storage::IoDirection> directions) {
    // fio may print warnings before the JSON.
    const nlohmann::json all = nlohmann::json::parse(
        json.substr(std::min(json.find('{'), json.size())), nullptr, /*allow_exceptions=*/false);
    if (!all.is_object() || !all.contains("jobs") || !all["jobs"].is_array() ||
        all["jobs"].size() != 1 || !all["jobs"][0].is_object()) {
        fail(ExitCode::kSetup, "cannot read fio's output: {}", printable(json.substr(0, 80)));
    }
    const nlohmann::json& job = all["jobs"][0];
    double bytes = 0, seconds = 0, job_seconds = 0;
    for (const storage::IoDirection direction : directions) {
        const auto part = job.find(storage::io_direction_name(direction));
        if (part == job.end() || !part->is_object())
            fail(ExitCode::kSetup, "fio's JSON has no `{}`; fio 3 is required",
                 storage::io_direction_name(direction));
        const double runtime = number_at(*part, "runtime") / 1000;
        bytes += number_at(*part, "io_bytes");
        seconds = std::max(seconds, runtime);
        job_seconds += runtime;
    }
    // fio's percentages refer to the sum of the run times of all its jobs.
    const double cpu_percent = number_at(job, "usr_cpu") + number_at(job, "sys_cpu");
    if (bytes <= 0 || seconds <= 0) fail(ExitCode::kSetup, "fio moved nothing");
    return {bytes / seconds, cpu_percent / 100 * job_seconds / bytes * 1e9};
}

}  // namespace dslaunch::launcher
