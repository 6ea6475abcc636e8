#include "launcher/jobs/report_command.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "launcher/jobs/job_report.h"
#include "launcher/jobs/machine_report.h"
#include "launcher/run/build_job.h"

namespace dslaunch::launcher {
namespace {

struct ReportArguments {
    std::string subject;  // a job or a folder; empty: only this machine
    std::string hostfile;
    bool names = false;
    bool json = false;
};

bool is_folder(const std::string& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

int print_report(const ReportArguments& arguments) {
    NameMask mask;
    std::vector<ReportSection> sections;
    if (!arguments.subject.empty()) {
        sections = is_folder(arguments.subject)
                       ? folder_report(arguments.subject, mask)
                       : job_report(find_job(own_state_directory(), arguments.subject), mask);
    }
    if (!arguments.hostfile.empty()) sections.push_back(hostfile_report(arguments.hostfile, mask));
    for (ReportSection& section : machine_report()) sections.push_back(std::move(section));
    const Machine machine = Machine::this_one();
    mask.add(machine.host_name, "host");
    for (const char* name : {"USER", "LOGNAME"})
        mask.add(machine.variable(name).value_or(""), "user");
    if (arguments.names) mask = {};
    fmt::print("{}", arguments.json ? report_json(sections, mask) : report_text(sections, mask));
    return 0;
}

}  // namespace

void add_report_command(CLI::App& app, int& exit_code) {
    CLI::App* report = app.add_subcommand("report", "Print what to paste into a bug report");
    auto arguments = std::make_shared<ReportArguments>();  // shared with the callback, which
                                                           // outlives this call
    report->add_option("JOB", arguments->subject,
                       "A job's id, or the first letters of it, or an --output folder");
    report->add_option("-H,--hostfile", arguments->hostfile, "Also the shape of this hostfile");
    report->add_flag("--names", arguments->names, "Leave names of hosts and users as they are");
    report->add_flag("--json", arguments->json, "Print JSON");
    report->callback([arguments, &exit_code] { exit_code = print_report(*arguments); });
}

}  // namespace dslaunch::launcher
