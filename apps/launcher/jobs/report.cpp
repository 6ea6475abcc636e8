#include "launcher/jobs/report.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/path.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "base/text/json.h"
#include "launch/plan/secrets.h"
#include "launcher/run/build_job.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

bool is_name_character(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

std::string clean(std::string_view text, const NameMask& mask) {
    return mask.apply(launch::hide_secrets(text));
}

std::string clean_fact(const std::pair<std::string, std::string>& fact, const NameMask& mask) {
    if (launch::is_secret_name(fact.first)) return std::string(launch::kHiddenValue);
    return clean(fact.second, mask);
}

struct ReportArguments {
    std::string subject;  // a job or a folder; empty: only this machine
    std::string hostfile;
    bool names = false;
    bool json = false;
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

void NameMask::add(const std::string& name, const std::string& word) {
    const bool is_number = parse_int(name).has_value();
    if (name.empty() || is_number || name == "localhost" || name == "root") return;
    for (const auto& [known, unused] : names_) {
        if (known == name) return;
    }
    auto found = std::find_if(words_.begin(), words_.end(),
                              [&](const auto& entry) { return entry.first == word; });
    if (found == words_.end()) found = words_.insert(words_.end(), {word, 0});
    names_.emplace_back(name, fmt::format("{}{}", word, ++found->second));
    // Longer names are replaced first: node10 before node1, a path before a part of it.
    std::stable_sort(names_.begin(), names_.end(),
                     [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
}

std::string NameMask::apply(std::string_view text) const {
    std::string result;
    for (size_t at = 0; at < text.size();) {
        const bool at_word = at == 0 || !is_name_character(text[at - 1]);
        const auto found = std::find_if(names_.begin(), names_.end(), [&](const auto& entry) {
            const size_t end = at + entry.first.size();
            return at_word && text.substr(at).starts_with(entry.first) &&
                   (end == text.size() || !is_name_character(text[end]));
        });
        if (found == names_.end()) {
            result += text[at++];
        } else {
            result += found->second;
            at += found->first.size();
        }
    }
    return result;
}

std::string report_text(const std::vector<ReportSection>& sections, const NameMask& mask) {
    std::string text;
    for (const ReportSection& section : sections) {
        text += fmt::format("{}## {}\n", text.empty() ? "" : "\n", section.title);
        for (const auto& fact : section.facts) {
            text += fmt::format("  {:<20} {}\n", printable(fact.first),
                                printable(clean_fact(fact, mask)));
        }
        if (section.text.empty()) continue;
        for (const std::string& line : split(clean(section.text, mask), '\n')) {
            if (!line.empty()) text += "    " + printable(line) + "\n";
        }
    }
    return text;
}

std::string report_json(const std::vector<ReportSection>& sections, const NameMask& mask) {
    JsonWriter json;
    json.begin_array();
    for (const ReportSection& section : sections) {
        json.begin_object().field("title", section.title).key("facts").begin_object();
        for (const auto& fact : section.facts) json.field(fact.first, clean_fact(fact, mask));
        json.end_object().field("text", clean(section.text, mask)).end_object();
    }
    json.end_array();
    return json.text() + "\n";
}

int report_command(std::span<const std::string> arguments) {
    ReportArguments parsed;
    CommandLine app(
        {.does = "Prints text for a bug report, with secrets hidden.",
         .examples = {"dslaunch report > report.txt", "dslaunch report run1 -H hostfile"},
         .docs = "docs/guide/jobs.md"},
        "dslaunch report");
    app.add("JOB", parsed.subject,
            "a job's id, the first letters of its id, or an --output folder; default: report on "
            "this machine only");
    app.add("-H,--hostfile FILE", parsed.hostfile, "also show the structure of this hostfile");
    app.add("--names", parsed.names, "do not hide the names of hosts and users");
    app.add("--json", parsed.json, "one JSON object");
    return app.parse({arguments.begin(), arguments.end()}) ? print_report(parsed) : 0;
}

}  // namespace dslaunch::launcher
