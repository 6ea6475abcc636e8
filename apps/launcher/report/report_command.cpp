// `dslaunch report`: text for a bug report, or with --html a page about runs.
#include <fmt/core.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/new_files.h"
#include "base/path.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "base/text/words.h"
#include "launcher/jobs/known_jobs.h"
#include "launcher/jobs/report.h"
#include "launcher/options/machine.h"
#include "launcher/report/html_report.h"
#include "launcher/run/commands.h"
#include "storage/disk/output_place.h"

namespace dslaunch::launcher {
namespace {

struct ReportArguments {
    // Jobs or folders: at most one for a bug report, and none for a report on this machine alone.
    std::vector<std::string> subjects;
    std::string hostfile;
    bool names = false;
    bool json = false;
    bool is_page = false;  // --html, or an HTML file after -o
    std::optional<std::string> output;
    bool replaces = false;
};

std::string ending_of(const std::string& path) {
    return lower(std::filesystem::path(path).extension().string());
}

bool is_html_name(const std::string& path) {
    const std::string ending = ending_of(path);
    return ending == ".html" || ending == ".htm";
}

// Refuses an OUTPUT whose ending would make programs open it as another kind of file. IS_PAGE is
// true if a page is written, false if a text is written.
void refuse_other_ending(const std::string& output, bool is_page) {
    const std::string ending = ending_of(output);
    for (const char* other : {".pdf", ".png", ".svg", ".docx", ".md", ".txt", ".json", ".csv"}) {
        const bool is_text = !is_page && (ending == ".txt" || ending == ".md" || ending == ".json");
        if (ending != other || is_text) continue;
        const std::string name = std::filesystem::path(output).replace_extension(".html").string();
        fail(ExitCode::kUsage, "-o {}: {}: name it {}{}{}", printable(output),
             is_page ? "the page is HTML" : "the report is plain text, or HTML with --html",
             is_page ? "" : "FILE.txt or ", shell_word(name),
             ending == ".pdf" ? "; a browser prints it as PDF" : "");
    }
}

// Returns ARGUMENTS, but replaces `--html=FILE` by the two options `--html` and `--output=FILE`.
std::vector<std::string> plain_words(std::span<const std::string> arguments) {
    constexpr std::string_view kPage = "--html=";
    std::vector<std::string> words;
    for (const std::string& word : arguments) {
        if (!word.starts_with(kPage)) {
            words.push_back(word);
            continue;
        }
        words.emplace_back("--html");
        words.push_back("--output=" + word.substr(kPage.size()));
    }
    return words;
}

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
             "{}: is a file, but a report needs a job: give its id or its --output folder. To see "
             "what a model contains: dslaunch model show {}",
             printable(subject), shell_word(subject));
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
    if (!arguments.output || *arguments.output == "-") {
        fmt::print("{}", arguments.json ? report_json(sections, mask)
                                        : fitted(report_text(sections, mask), 1));
        return 0;
    }
    write_file_atomically(*arguments.output, arguments.json ? report_json(sections, mask)
                                                            : report_text(sections, mask));
    print_message(fmt::format("dslaunch: the report is in {}", printable(*arguments.output)));
    return 0;
}

int write_report(ReportArguments& arguments) {
    if (arguments.replaces && !arguments.output && !arguments.is_page)
        fail(ExitCode::kUsage, "report: --force is for -o FILE: leave it out");
    if (arguments.output && is_html_name(*arguments.output)) arguments.is_page = true;
    if (arguments.is_page && (arguments.json || arguments.names || !arguments.hostfile.empty()))
        fail(ExitCode::kUsage,
             "report: {} is for the text report, not for the page of --html: leave it out",
             arguments.json    ? "--json"
             : arguments.names ? "--names"
                               : "--hostfile");
    if (arguments.output) refuse_other_ending(*arguments.output, arguments.is_page);
    if (arguments.is_page)
        return write_html_report(
            {arguments.subjects, arguments.output.value_or("report.html"), arguments.replaces});
    if (arguments.output && *arguments.output != "-") {
        storage::require_new_file(*arguments.output, arguments.replaces);
        if (ending_of(*arguments.output) == ".json") arguments.json = true;
    }
    return print_report(arguments);
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
    app.add("-o,--output FILE", parsed.output,
            "write to FILE; default: stdout, with --html report.html; - is stdout; a name that "
            "ends in .html means --html");
    app.add("--force", parsed.replaces, storage::kForceHelp);
    app.add("--html", parsed.is_page, "write a page for browsers");
    app.group("options for text");
    app.add("-H,--hostfile FILE", parsed.hostfile, "also show the structure of this hostfile");
    app.add("--names", parsed.names, "do not hide the names of hosts and users");
    app.add("--json", parsed.json, "one JSON object");
    if (!app.parse(plain_words(arguments))) return 0;
    return write_report(parsed);
}

}  // namespace dslaunch::launcher
