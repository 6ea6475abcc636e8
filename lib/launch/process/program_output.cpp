#include "launch/process/program_output.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/fd.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kOutputBytesMax = 1U << 20;
constexpr milliseconds kDeathMax{100};

void reap(pid_t pid) {
    ::kill(-pid, SIGKILL);  // the process group, which has ended or has used up its time
    const auto limit = steady_clock::now() + kDeathMax;
    while (::waitpid(pid, nullptr, WNOHANG) == 0 && steady_clock::now() < limit) ::usleep(1'000);
}

}  // namespace

std::string program_output(const std::vector<std::string>& command, milliseconds limit) {
    Pipe pipe = make_pipe();
    SpawnRequest request;
    request.command = command;
    request.environment = own_environment();
    request.stdout_fd = request.stderr_fd = pipe.write_end.get();
    request.die_with_parent = true;
    const SpawnResult started = spawn(request);
    pipe.write_end.reset();
    if (!started.error.empty()) return "";
    const auto end = steady_clock::now() + limit;
    std::string text;
    bool has_ended = false;
    while (!has_ended && text.size() < kOutputBytesMax) {
        const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now()).count();
        pollfd entry{pipe.read_end.get(), POLLIN, 0};
        if (left <= 0 || ::poll(&entry, 1, static_cast<int>(left)) <= 0) break;
        char block[4096];
        const ssize_t n = ::read(pipe.read_end.get(), block, sizeof block);
        has_ended = n <= 0;
        if (!has_ended) text.append(block, static_cast<size_t>(n));
    }
    reap(started.pid);
    return has_ended || text.size() >= kOutputBytesMax ? text : "";
}

}  // namespace dslaunch::launch
