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

// Writes the page and names it. Throws Error{kUsage} for no run, too many, or a job without a
// folder, Error{kInput} if a folder is not the folder of a run, and Error{kDisk} if the page exists
// or cannot be written.
int write_html_report(const HtmlReportRequest& request);

}  // namespace dslaunch::launcher
