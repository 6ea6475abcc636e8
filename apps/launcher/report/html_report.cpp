#include "launcher/report/html_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>

#include "base/error.h"
#include "base/new_files.h"
#include "base/path.h"
#include "base/screen.h"
#include "base/text.h"
#include "launcher/jobs/known_jobs.h"
#include "launcher/report/html_page.h"
#include "launcher/report/run_folder.h"

namespace dslaunch::launcher {
namespace {

// Returns the run that SUBJECT means: a folder, a file in it, or a job among JOBS.
RunFolder run_of(const std::string& subject, const std::vector<KnownJob>& jobs,
                 const std::string& state) {
    std::error_code unreadable;
    if (std::filesystem::is_directory(subject, unreadable))
        return read_run_folder(subject, job_of_output(jobs, subject));
    if (std::filesystem::exists(subject, unreadable))
        return read_run_folder(folder_of(subject), job_of_output(jobs, subject));
    if (subject.find('/') != subject.npos || state.empty())
        fail(ExitCode::kInput, "{}: no such folder; give the --output folder of a run",
             printable(subject));
    const KnownJob job = find_job(state, subject);
    if (job.output.empty())
        fail(ExitCode::kUsage,
             "job {} kept no results, so there is nothing to show: the job ran with --no-output, "
             "or was a script or program without --output",
             job.id);
    return read_run_folder(job.output, &job);
}

void refuse_existing(const HtmlReportRequest& request) {
    std::error_code unreadable;
    const std::string& path = request.output;
    if (path == "-") return;
    if (path.ends_with('/') || std::filesystem::is_directory(path, unreadable))
        fail(ExitCode::kDisk, "{}: is a folder; give the page a file name: -o {}", printable(path),
             printable((std::filesystem::path(path) / "report.html").string()));
    if (!request.replaces && std::filesystem::exists(path, unreadable))
        fail(ExitCode::kInput,
             "{}: already exists; use --force to replace it, or give another name with -o",
             printable(path));
}

std::string made_text() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    return fmt::format("Made on {:%Y-%m-%d %H:%M} by dslaunch {}.", local, DSL_VERSION);
}

}  // namespace

int write_html_report(const HtmlReportRequest& request) {
    if (request.subjects.empty())
        fail(ExitCode::kUsage,
             "report --html needs the --output folders of one or more runs: dslaunch report --html "
             "runs/a runs/b -o report.html");
    if (request.subjects.size() > kRunsMax)
        fail(ExitCode::kUsage, "report --html shows at most {} runs, but {} are given", kRunsMax,
             request.subjects.size());
    refuse_existing(request);
    // Without a state folder (no HOME), folders are still read.
    std::string state;
    std::vector<KnownJob> jobs;
    try {
        state = own_state_directory();
        jobs = read_jobs(state);
    } catch (const Error&) {
        state.clear();
    }
    std::vector<RunFolder> runs;
    for (const std::string& subject : request.subjects)
        runs.push_back(run_of(subject, jobs, state));
    name_apart(runs);
    const std::string page = html_page(runs, made_text());
    if (request.output == "-") {
        fmt::print("{}", page);
        return 0;
    }
    write_file_atomically(request.output, page);
    print_message(fmt::format("dslaunch: {}: {}, open it in a browser", printable(request.output),
                              counted(std::ssize(runs), "run")));
    return 0;
}

}  // namespace dslaunch::launcher
