// `dslaunch exec [options] -- COMMAND…`: runs one program on all hosts and shows equal outputs
// once.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <system_error>

#include "base/error.h"
#include "base/fd.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/json.h"
#include "launch/fleet/fleet.h"
#include "launch/fleet/host_question.h"
#include "launch/hosts/host_list.h"
#include "launch/process/spawn.h"
#include "launch/process/standard_streams.h"
#include "launch/supervise/job.h"
#include "launch/transport/tree/tree_transport.h"
#include "launcher/hosts/host_command.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

HelpPage exec_page() {
    return {.does =
                "Runs COMMAND on all hosts at once, in the current directory and with an empty "
                "stdin. No shell is used; to use one, give sh -c '...'. Hosts with the same output "
                "are shown together. A host that cannot be reached does not delay the others.",
            .examples = {"dslaunch exec -H hostfile nvidia-smi -L",
                         "dslaunch exec -w te[01-16] -- sh -c 'df -h /scratch | tail -1'"},
            .exit_codes =
                "the highest code of all hosts. A host's code is the command's exit code, 127 if "
                "the command cannot be started, 128+n for signal n, 67 if the host was not "
                "reached, 69 if the time ran out.",
            .docs = "docs/guide/hosts.md",
            .usage = {"dslaunch exec [options] [--] COMMAND [arguments]"}};
}

struct ExecOptions {
    bool stream = false;
    bool json = false;
    std::optional<std::chrono::milliseconds> time_max;
};

std::string lines_of(std::string_view text, std::string_view prefix) {
    std::string printed;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size() - 1);
        std::string_view line = text.substr(0, end + 1);
        if (line.ends_with('\n')) line.remove_suffix(1);
        printed += fmt::format("{}{}\n", prefix, printable(line));
        text.remove_prefix(end + 1);
    }
    return printed;
}

std::string names_of(const HostTargets& targets, const std::vector<size_t>& hosts) {
    std::vector<std::string> names;
    for (const size_t host : hosts) names.push_back(targets.hosts[host].name);
    const std::string folded = launch::fold_names(names);
    return hosts.size() == 1 ? folded : fmt::format("{} ({} hosts)", folded, hosts.size());
}

void print_groups(const HostTargets& targets, const std::vector<launch::ExecResult>& results) {
    std::vector<std::string> texts;
    std::vector<size_t> who;     // indices of hosts with output
    std::vector<size_t> silent;  // indices of hosts without output or error
    for (size_t i = 0; i < results.size(); ++i) {
        std::string text = results[i].output;
        if (results[i].output_was_cut) {
            if (!text.ends_with('\n')) text += '\n';
            text +=
                "[the output is too long to keep, so the rest is left out; --stream shows all]\n";
        }
        if (text.empty()) {
            if (results[i].code() == 0) silent.push_back(i);
            continue;
        }
        texts.push_back(std::move(text));
        who.push_back(i);
    }
    for (launch::EqualTexts& group : launch::group_equal(texts)) {
        for (size_t& host : group.hosts) host = who[host];
        fmt::print("{}:\n{}", names_of(targets, group.hosts), lines_of(group.text, ""));
    }
    std::fflush(stdout);
    if (!silent.empty())
        print_message(
            fmt::format("dslaunch: done without output on {}", names_of(targets, silent)));
}

std::string describe(const launch::ExecResult& result) {
    if (!result.error.empty()) return result.error;
    if (result.signal_number != 0) return "ended by " + launch::signal_text(result.signal_number);
    return fmt::format("exit code {}", result.exit_status);
}

void print_failures(const HostTargets& targets, const std::vector<launch::ExecResult>& results) {
    std::vector<std::string> texts;
    std::vector<size_t> who;
    for (size_t i = 0; i < results.size(); ++i) {
        if (results[i].code() == 0) continue;
        texts.push_back(describe(results[i]));
        who.push_back(i);
    }
    if (who.empty()) return;
    print_message(fmt::format("dslaunch: the command failed on {} of {}:", who.size(),
                              counted(std::ssize(results), "host")));
    for (launch::EqualTexts& group : launch::group_equal(texts)) {
        for (size_t& host : group.hosts) host = who[host];
        print_message(fmt::format("  {}: {}", names_of(targets, group.hosts), group.text));
    }
}

void print_json(const HostTargets& targets, const std::vector<launch::ExecResult>& results) {
    JsonWriter json;
    json.begin_object().key("hosts").begin_array();
    for (size_t i = 0; i < results.size(); ++i) {
        const launch::ExecResult& result = results[i];
        json.begin_object().field("host", targets.hosts[i].name).field("code", result.code());
        if (result.signal_number != 0) json.field("signal", result.signal_number);
        if (!result.error.empty()) json.field("error", result.error);
        json.field("output", result.output);
        if (result.output_was_cut) json.field("output_was_cut", true);
        json.end_object();
    }
    json.end_array().end_object();
    fmt::print("{}\n", json.text());
}

HostCommand exec_syntax(ExecOptions& options) {
    HostCommand command{exec_page(), {}, RunRows::kProgram};
    command.options = {
        {"stream", "",
         "print each line as it arrives, with its host, instead of grouping the output",
         [&](const std::string&) { options.stream = true; }},
        {"timeout,u", "SECONDS", "end the command if it runs longer (code 69); default: never",
         [&](const std::string& value) {
             const auto seconds = parse_double(value);
             if (!seconds || !(*seconds > 0 && *seconds <= 1e6)) {
                 fail(ExitCode::kUsage, "`{}` is not a number of seconds up to 1000000",
                      printable(value));
             }
             options.time_max = std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1000));
         }},
        {"S", "",
         "accepted as in pdsh, no effect: this command always returns the highest exit code of all "
         "hosts",
         [](const std::string&) {}},
        {"json", "", "print one JSON object with the exit code and output of every host",
         [&](const std::string&) { options.json = true; }},
    };
    return command;
}

}  // namespace

int exec_command(std::span<const std::string> arguments) {
    ExecOptions options;
    const HostCommand syntax = exec_syntax(options);
    const ParsedCommand parsed = parse_host_command(arguments, syntax);
    if (parsed.help) return 0;
    if (parsed.words.empty()) {
        fail(ExitCode::kUsage,
             "COMMAND is missing: dslaunch exec [options] -- COMMAND [arguments]");
    }
    if (options.stream && options.json) {
        fail(ExitCode::kUsage, "--stream and --json cannot be used together");
    }
    const UniqueFd signals = launch::open_end_signals();
    ::signal(SIGPIPE, SIG_IGN);
    launch::StandardStreams streams;  // also for the transport's log lines
    const HostTargets targets = find_hosts(parsed.hosts);
    const auto transport = launch::make_job_transport(targets.spec);
    launch::Fleet fleet(targets.hosts, *transport, signals.get());
    fleet.connect(targets.spec.connect_max, false);
    launch::ExecRequest request;
    request.command = parsed.words;
    request.environment = targets.spec.environment;
    request.working_directory = targets.spec.working_directory;
    request.time_max = options.time_max;
    if (options.stream) {
        request.on_lines = [&](size_t host, launch::OutputStream stream, std::string_view lines) {
            const int fd = stream == launch::OutputStream::kStdout ? 1 : 2;
            streams.write(fd, lines_of(lines, targets.hosts[host].name + ": "));
            // The reader of the output has stopped reading. The exception ends the command on all
            // hosts.
            if (streams.reader_is_gone(fd)) throw std::system_error(EPIPE, std::generic_category());
        };
        request.pause = [&](std::chrono::milliseconds left) {
            return streams.make_way(left, signals.get(), fleet.interrupted());
        };
    }
    const std::vector<launch::ExecResult> results = launch::exec_on(fleet, request);
    if (fleet.interrupted()) streams.hurry();
    fleet.stop();
    streams.drain();
    launch::release_end_signals();  // from here on Ctrl-C ends this program at once
    if (options.json) {
        print_json(targets, results);
    } else {
        if (!options.stream) print_groups(targets, results);
        print_failures(targets, results);
    }
    int code = 0;
    for (const launch::ExecResult& result : results) code = std::max(code, result.code());
    return fleet.interrupted() ? static_cast<int>(ExitCode::kInterrupted) : code;
}

}  // namespace dslaunch::launcher
