#include "launch/agent/agent_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "launch/agent/agent.h"
#include "launch/hosts/hostfile.h"
#include "launch/machine/held_name.h"
#include "launch/machine/machine_name.h"
#include "launch/plan/join_token.h"
#include "launch/plan/worker_environment.h"

namespace dslaunch::launch {
namespace {

HelpPage agent_page() {
    return {.does =
                "Serves one node of one job: starts the node's workers and ends with them. When "
                "the job starts again after a failure (--max_restarts), the agent joins again.",
            .examples = {"DSLAUNCH_TOKEN=... dslaunch agent --join node1:29400",
                         "dslaunch agent --join node1:29400 --node 1 --token-file ~/token"},
            .docs = "docs/guide/launchers.md",
            .usage = {"dslaunch agent --join HOST:PORT [options]", "dslaunch agent --stdio"}};
}

constexpr double kConnectSecondsMax = 7.0 * 86'400;

uint32_t node_number(const std::string& name, const std::string& text) {
    const auto number = parse_int(text);
    if (!number || *number < 0 || *number >= kHostsMax) {
        fail(ExitCode::kUsage, "agent: {}: `{}` is not a node's number from 0 to {}", name,
             printable(text), kHostsMax - 1);
    }
    return static_cast<uint32_t>(*number);
}

std::string node_name(const std::string& name, const std::string& text) {
    if (is_host_name(text)) return text;
    fail(ExitCode::kUsage, "agent: {}: `{}` is not a host name", name, printable(text));
}

std::chrono::milliseconds waiting_time(const std::string& name, const std::string& text) {
    const auto seconds = parse_double(text);
    if (!seconds || !(*seconds >= 0.1 && *seconds <= kConnectSecondsMax)) {
        fail(ExitCode::kUsage, "agent: {}: `{}` is not a number of seconds", name, printable(text));
    }
    return std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1000.0));
}

void check(const AgentArguments& parsed) {
    const JoinRequest& join = parsed.join;
    const bool joins = join.endpoint.is_unix() || !join.endpoint.host.empty();
    if (joins == parsed.stdio) {
        fail(ExitCode::kUsage,
             "agent: give either --join HOST:PORT or --stdio (only dslaunch itself uses --stdio); "
             "see dslaunch agent --help");
    }
    if (join.identity.node && !join.identity.node_name.empty()) {
        fail(ExitCode::kUsage, "agent: give the node's number or its name, but not both");
    }
}

}  // namespace

AgentArguments parse_agent_arguments(
    std::span<const std::string> arguments,
    const std::function<std::optional<std::string>(const std::string&)>& variable) {
    AgentArguments parsed;
    std::optional<std::string> join, node, given_name, node_from, node_name_from, connect_seconds;
    std::optional<std::string> worker_stdin;
    CommandLine app(agent_page(), "dslaunch agent");
    app.add("--join HOST:PORT", join,
            "address of the launcher, started with `dslaunch --launcher join --listen HOST:PORT`; "
            "unix:PATH for a Unix socket; retried until the launcher answers");
    app.add("--node N", node,
            "number of this node, from 0; default: in the order in which agents arrive");
    app.add("--node-name NAME", given_name, "name of this host in the launcher's list of hosts");
    app.add("--node-from VARIABLE", node_from,
            "environment variable with the node's number, such as OMPI_COMM_WORLD_RANK");
    app.add("--node-name-from VARIABLE", node_name_from,
            "environment variable with the node's name, such as SLURMD_NODENAME");
    app.add("--token-file FILE", parsed.token_file,
            "file with the token that launcher and agent share, mode 600; default: the variable "
            "DSLAUNCH_TOKEN");
    app.add("--remove-socket", parsed.join.removes_socket,
            "remove the socket unix:PATH after joining");
    app.add("--connect-timeout SECONDS", connect_seconds,
            "how long to wait for the launcher, default 300");
    app.add("--stdio", parsed.stdio,
            "talk to the launcher over stdin and stdout; only dslaunch itself uses this");
    app.add("--same-machine", parsed.same_machine,
            "with --stdio: the launcher runs on this machine");
    app.add("--worker-stdin FD", worker_stdin,
            "file descriptor of rank 0's stdin; only dslaunch itself uses this");
    app.add("--worker-asks", parsed.worker_stdin.asks,
            "with --worker-stdin: rank 0's stdin is a terminal, at which a user answers questions");
    parsed.help = !app.parse({arguments.begin(), arguments.end()});
    if (parsed.help) return parsed;
    const auto from_variable = [&](const std::string& option, const std::string& name) {
        const auto value = variable(name);
        if (value && !value->empty()) return *value;
        fail(ExitCode::kUsage, "agent: {} {}: that variable is not set here", option,
             printable(name));
    };
    JoinIdentity& identity = parsed.join.identity;
    if (join) parsed.join.endpoint = parse_join_endpoint(*join);
    if (node) identity.node = node_number("--node", *node);
    if (node_from)
        identity.node = node_number("--node-from", from_variable("--node-from", *node_from));
    if (given_name) identity.node_name = node_name("--node-name", *given_name);
    if (node_name_from)
        identity.node_name =
            node_name("--node-name-from", from_variable("--node-name-from", *node_name_from));
    if (connect_seconds)
        parsed.join.connect_max = waiting_time("--connect-timeout", *connect_seconds);
    if (worker_stdin)
        parsed.worker_stdin.fd = static_cast<int>(parse_int(*worker_stdin).value_or(-1));
    check(parsed);
    return parsed;
}

int run_joining_agent(JoinRequest request, WorkerStdin worker_stdin) {
    const std::string held_name = take_held_name_variable();
    const HeldName held = held_name.empty() ? HeldName() : HeldName(held_name);
    request.identity.host_name = machine_name();
    set_log_speaker("agent@" + (request.identity.node_name.empty() ? request.identity.host_name
                                                                   : request.identity.node_name));
    if (!request.endpoint.is_unix() && request.token.empty()) {
        fail(ExitCode::kUsage, "agent: joining over a network needs the launcher's token; {}",
             kTokenAdvice);
    }
    for (;;) {
        JoinedLauncher launcher = join_launcher(request);
        // The agent uses one descriptor for each direction, as it does with pipes.
        const UniqueFd out(::fcntl(launcher.socket.get(), F_DUPFD_CLOEXEC, 3));
        const UniqueFd come_again(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!out.valid() || !come_again.valid()) {
            fail(ExitCode::kSetup, "cannot open another file descriptor: {}", errno_text(errno));
        }
        AgentSettings settings;
        settings.arrival_address = launcher.arrival_address;
        settings.lease = LauncherLease::over_socket(launcher.socket.get());
        settings.asks_before_ending = true;
        settings.worker_stdin = worker_stdin;
        settings.come_again_fd = come_again.get();
        if (const char* devices = std::getenv(kDevicesVariable)) {
            settings.visible_devices = devices;
        }
        const int code =
            run_agent(launcher.socket.get(), out.get(), std::move(launcher.channel), settings);
        eventfd_t asked = 0;
        if (code != 0 || ::eventfd_read(come_again.get(), &asked) != 0) return code;
        log_info("agent", "the job starts again: joining it again");
    }
}

int run_agent_command(std::span<const std::string> arguments) {
    AgentArguments parsed =
        parse_agent_arguments(arguments, [](const std::string& name) -> std::optional<std::string> {
            const char* value = std::getenv(name.c_str());
            if (value == nullptr) return std::nullopt;
            return value;
        });
    if (parsed.help) return 0;
    if (parsed.worker_stdin.fd >= 0) ::fcntl(parsed.worker_stdin.fd, F_SETFD, FD_CLOEXEC);
    const std::string variable = take_token_variable();  // so that no worker inherits it
    if (parsed.stdio) {
        AgentSettings settings;
        settings.lease = LauncherLease::over_stdio(parsed.same_machine);
        settings.worker_stdin = parsed.worker_stdin;
        return run_agent(STDIN_FILENO, STDOUT_FILENO, JoinChannel(JoinSide::kAgent, JoinKey()),
                         settings);
    }
    parsed.join.token = choose_token(variable, parsed.token_file);
    return run_joining_agent(std::move(parsed.join), parsed.worker_stdin);
}

}  // namespace dslaunch::launch
