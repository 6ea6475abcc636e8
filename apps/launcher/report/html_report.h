// `dslaunch report --html`: finds the folders of runs and writes a page about them. One thread.
#pragma once

#include <string>
#include <vector>

namespace dslaunch::launcher {

// The command line of `report --html`.
struct HtmlReportRequest {
    std::vector<std::string> subjects;  // --output folders, files in them, or jobs
    std::string output;                 // the page; "-": stdout
    bool replaces = false;              // an existing page may be replaced
};

// Writes the page and prints its path. Throws Error{kUsage} if there is no run, if there are too
// many runs, or if a job has no folder. Throws Error{kInput} if a folder does not belong to a run,
// and Error{kDisk} if the page exists or cannot be written.
int write_html_report(const HtmlReportRequest& request);

}  // namespace dslaunch::launcher
