#include "launcher/io/fio_run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/process/spawn.h"

namespace dslaunch::launcher {
namespace {

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

// A started program, which the destructor ends.
class Child {
  public:
    explicit Child(pid_t pid) : pid_(pid) {}
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        if (pid_ <= 0) return;
        ::kill(-pid_, SIGKILL);  // the child leads a group of its own
        ::waitpid(pid_, nullptr, 0);
    }
    // The child's exit status; it has closed its output, so it ends soon.
    int wait() {
        int status = 0;
        while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
        pid_ = 0;
        return status;
    }

  private:
    pid_t pid_;
};

// All output of the child, until it closes its end.
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
        if (output.size() > kOutputBytesMax) fail(ExitCode::kSetup, "fio writes without end");
    }
}

double number_at(const nlohmann::json& object, const char* name) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_number())
        fail(ExitCode::kSetup, "fio's JSON has no number `{}`: is this fio 3?", name);
    return found->get<double>();
}

}  // namespace

std::optional<std::string> find_fio() {
    const std::string path = launch::find_program("fio", launch::own_environment(), ".");
    return path.empty() ? std::nullopt : std::optional(path);
}

IoFigure run_fio(const FioRequest& request, const std::function<void()>& check) {
    Pipe output = make_pipe();
    Pipe errors = make_pipe();
    launch::SpawnRequest spawning;
    spawning.command = command_for(request);
    spawning.environment = launch::own_environment();
    // fio's memory is in huge pages, as in measure_io(); otherwise the comparison would be one of
    // pages.
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
    const int status = child.wait();
    if (status != 0)
        fail(ExitCode::kSetup, "fio ({}) ended with status {}: {}", request.engine, status,
             printable(said.substr(0, said.find('\n'))));
    if (request.both)
        return parse_fio(json, {storage::IoDirection::kRead, storage::IoDirection::kWrite});
    return parse_fio(json, {request.cell.direction});
}

IoFigure parse_fio(const std::string& json,
                   std::initializer_list<storage::IoDirection> directions) {
    // Warnings may come before the JSON.
    const nlohmann::json all = nlohmann::json::parse(
        json.substr(std::min(json.find('{'), json.size())), nullptr, /*allow_exceptions=*/false);
    if (!all.is_object() || !all.contains("jobs") || !all["jobs"].is_array() ||
        all["jobs"].size() != 1 || !all["jobs"][0].is_object()) {
        fail(ExitCode::kSetup, "fio's output is not understood: {}", printable(json.substr(0, 80)));
    }
    const nlohmann::json& job = all["jobs"][0];
    double bytes = 0, seconds = 0, job_seconds = 0;
    for (const storage::IoDirection direction : directions) {
        const auto part = job.find(storage::io_direction_name(direction));
        if (part == job.end() || !part->is_object())
            fail(ExitCode::kSetup, "fio's JSON has no `{}`", storage::io_direction_name(direction));
        const double runtime = number_at(*part, "runtime") / 1000;
        bytes += number_at(*part, "io_bytes");
        seconds = std::max(seconds, runtime);
        job_seconds += runtime;
    }
    // The percentage is of the time of all jobs of fio.
    const double cpu_percent = number_at(job, "usr_cpu") + number_at(job, "sys_cpu");
    if (bytes <= 0 || seconds <= 0) fail(ExitCode::kSetup, "fio moved nothing");
    return {bytes / seconds, cpu_percent / 100 * job_seconds / bytes * 1e9};
}

}  // namespace dslaunch::launcher
