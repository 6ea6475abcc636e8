// `dslaunch report [JOB|DIR]`: prints a text to paste into a bug report.
#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/path.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "launcher/jobs/report.h"
#include "launcher/run/build_job.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

struct ReportArguments {
    std::string subject;  // a job or a folder; empty: only this machine
    std::string hostfile;
    bool names = false;
    bool json = false;
};

// The report of a job, of an --output folder, or of the folder of a file in it.
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
             "{0}: is a file, and a report is about a job: its id, or its --output folder. What a "
             "model holds is shown by: dslaunch model show {0}",
             printable(subject));
    return folder_report(folder, mask);
}

int print_report(const ReportArguments& arguments) {
    NameMask mask;
    std::vector<ReportSection> sections;
    if (!arguments.subject.empty()) {
        sections = report_of(arguments.subject, mask);
    }
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
        {.does = "Prints text for a bug report, with secrets hidden.",
         .examples = {"dslaunch report > report.txt", "dslaunch report run1 -H hostfile"},
         .docs = "docs/guide/jobs.md"},
        "dslaunch report");
    app.add("JOB", parsed.subject,
            "a job's id, or the first letters of it, or an --output folder; default: this machine "
            "alone");
    app.add("-H,--hostfile FILE", parsed.hostfile, "also show the form of this hostfile");
    app.add("--names", parsed.names, "do not hide names of hosts and users");
    app.add("--json", parsed.json, "one JSON object");
    return app.parse({arguments.begin(), arguments.end()}) ? print_report(parsed) : 0;
}

}  // namespace dslaunch::launcher
