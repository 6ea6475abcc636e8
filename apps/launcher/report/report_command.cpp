// `dslaunch report`: text for a bug report, or with --html a page about runs.
#include <fmt/core.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/path.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "launcher/jobs/known_jobs.h"
#include "launcher/jobs/report.h"
#include "launcher/options/machine.h"
#include "launcher/report/html_report.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

struct ReportArguments {
    // Jobs or folders: at most one for a bug report, and none for a report on this machine alone.
    std::vector<std::string> subjects;
    std::string hostfile;
    bool names = false;
    bool json = false;
    bool is_page = false;  // --html
    std::optional<std::string> page;
    bool replaces = false;
};

// Returns the report for SUBJECT: a job, an --output folder, or a file in such a folder.
std::vector<ReportSection> report_of(const std::string& subject, NameMask& mask) {
    std::error_code unreadable;
    const bool is_folder = std::filesystem::is_directory(subject, unreadable);
    if (!is_folder && !std::filesystem::exists(subject, unreadable))
        return job_report(find_job(own_state_directory(), subject), mask);
    const std::vector<KnownJob> jobs = read_jobs(own_state_directory());
    if (const KnownJob* job = job_of_output(jobs, subject)) return job_report(*job, mask);
    const std::string folder = is_folder ? subject : folder_of(subject);
    if (!is_folder && !std::filesystem::exists(folder + "/run.json", unreadable))
        fail(ExitCode::kInput,
             "{0}: is a file, but a report needs a job: give its id or its --output folder. To see "
             "what a model contains: dslaunch model show {0}",
             printable(subject));
    return folder_report(folder, mask);
}

int print_report(const ReportArguments& arguments) {
    NameMask mask;
    std::vector<ReportSection> sections;
    if (arguments.subjects.size() > 1)
        fail(ExitCode::kUsage,
             "a report for a bug is about one job, but {} are given; --html compares runs",
             arguments.subjects.size());
    if (!arguments.subjects.empty()) sections = report_of(arguments.subjects.front(), mask);
    if (!arguments.hostfile.empty()) sections.push_back(hostfile_report(arguments.hostfile, mask));
    for (ReportSection& section : machine_report()) sections.push_back(std::move(section));
    const Machine machine = Machine::this_one();
    mask.add(machine.host_name, "host");
    for (const char* name : {"USER", "LOGNAME"})
        mask.add(machine.variable(name).value_or(""), "user");
    if (arguments.names) mask = {};
    fmt::print("{}", arguments.json ? report_json(sections, mask)
                                    : fitted(report_text(sections, mask), 1));
    return 0;
}

}  // namespace

int report_command(std::span<const std::string> arguments) {
    ReportArguments parsed;
    CommandLine app(
        {.does = "Prints text for a bug report, with secrets hidden. With --html, writes a page "
                 "about one or more runs instead: curves, speed, memory, hosts and config, several "
                 "runs side by side. The page needs no network and names the hosts.",
         .examples = {"dslaunch report > report.txt", "dslaunch report run1 -H hostfile",
                      "dslaunch report --html runs/a runs/b -o report.html"},
         .docs = "docs/guide/jobs.md",
         .usage = {"dslaunch report [JOB] [options]",
                   "dslaunch report --html DIR [DIR ...] [-o FILE] [--force]"}},
        "dslaunch report");
    app.add("JOB", parsed.subjects,
            "a job's id, the first letters of its id, or an --output folder; default: report on "
            "this machine only; with --html one or more");
    app.group("options for a page");
    app.add("--html", parsed.is_page, "write a page for browsers");
    app.add("-o,--output FILE", parsed.page, "the page, default report.html; - is stdout")
        .needs("--html");
    app.add("--force", parsed.replaces, "replace the page if it exists").needs("--html");
    app.group("options for text");
    app.add("-H,--hostfile FILE", parsed.hostfile, "also show the structure of this hostfile")
        .excludes("--html");
    app.add("--names", parsed.names, "do not hide the names of hosts and users").excludes("--html");
    app.add("--json", parsed.json, "one JSON object").excludes("--html");
    if (!app.parse({arguments.begin(), arguments.end()})) return 0;
    if (!parsed.is_page) return print_report(parsed);
    return write_html_report(
        {parsed.subjects, parsed.page.value_or("report.html"), parsed.replaces});
}

}  // namespace dslaunch::launcher
