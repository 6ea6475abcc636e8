#include "job/predict/measuring_neighbours.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <span>

#include "base/error.h"
#include "launch/plan/worker_environment.h"
#include "launch/process/spawn.h"

namespace dslaunch::job {
namespace {

constexpr char kReady = 'r';
constexpr size_t kArgumentsMax = 1 << 22;

std::vector<std::string> own_arguments() {
    std::vector<std::string> arguments;
    const std::string all = read_file("/proc/self/cmdline", kArgumentsMax);
    for (size_t begin = 0; begin < all.size();) {
        const size_t end = std::min(all.find('\0', begin), all.size());
        arguments.push_back(all.substr(begin, end - begin));
        begin = end + 1;
    }
    return arguments;
}

// Returns the newest order that has arrived: 0 if there is no order, or -1 if standard input has
// ended. If WAITS, waits until an order arrives.
int next_order(bool waits) {
    int order = 0;
    while (true) {
        pollfd input{STDIN_FILENO, POLLIN, 0};
        if (::poll(&input, 1, waits && order == 0 ? -1 : 0) <= 0) return order;
        std::byte byte{};
        if (read_full(STDIN_FILENO, {&byte, 1}) != 1) return -1;
        order = static_cast<int>(byte);
    }
}

void answer(char what) {
    if (const int code = write_full(STDOUT_FILENO, std::string_view(&what, 1)); code < 0)
        fail(ExitCode::kSetup, "cannot report a parallel measurement: {}", errno_text(-code));
}

}  // namespace

MeasuringNeighbours::MeasuringNeighbours(int count, const std::string& option) {
    std::vector<std::string> command = own_arguments();
    command.front() = "/proc/self/exe";
    command.push_back(option);
    for (int i = 0; i < count; ++i) start(command);
    for (const Neighbour& neighbour : neighbours_) await_answer(neighbour);
}

MeasuringNeighbours::~MeasuringNeighbours() {
    for (const Neighbour& neighbour : neighbours_) ::kill(neighbour.pid, SIGKILL);
    for (const Neighbour& neighbour : neighbours_) launch::wait_for_end(neighbour.pid);
}

void MeasuringNeighbours::start(const std::vector<std::string>& command) {
    Pipe orders = make_pipe(), answers = make_pipe();
    launch::SpawnRequest request;
    request.command = command;
    launch::set_variable(request.environment, launch::kLogLevelVariable, "error");  // the rest is
                                                                                    // logged here
    request.stdin_fd = orders.read_end.get();
    request.stdout_fd = answers.write_end.get();
    request.stderr_fd = STDERR_FILENO;
    request.die_with_parent = true;
    const launch::SpawnResult started = launch::spawn(request);
    if (started.pid < 0)
        fail(ExitCode::kSetup, "cannot start a process to measure in parallel: {}", started.error);
    neighbours_.push_back({started.pid, std::move(orders.write_end), std::move(answers.read_end)});
}

void MeasuringNeighbours::await_answer(const Neighbour& neighbour) {
    std::byte byte{};
    if (read_full(neighbour.answers.get(), {&byte, 1}) != 1)
        fail(ExitCode::kSetup,
             "process {} has ended: it ran the same measurement at the same time, in place of "
             "another rank of this host; is there enough memory for all ranks of the host?",
             neighbour.pid);
}

void MeasuringNeighbours::begin(MeasuredWork work) const {
    const auto order = static_cast<char>(work);
    for (const Neighbour& neighbour : neighbours_)
        static_cast<void>(write_full(neighbour.orders.get(), std::string_view(&order, 1)));
    for (const Neighbour& neighbour : neighbours_) await_answer(neighbour);
}

void measure_beside(const std::function<void(MeasuredWork)>& work) {
    answer(kReady);
    int current = 0;
    while (true) {
        const int order = next_order(/*waits=*/current == 0);
        if (order < 0) return;
        if (order > 0) {
            current = order;
            answer(static_cast<char>(order));
        }
        work(static_cast<MeasuredWork>(current));
    }
}

}  // namespace dslaunch::job
