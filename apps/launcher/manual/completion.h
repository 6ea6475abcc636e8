// Finds the words that complete the last word of a command line of dslaunch. The options, values
// and subcommands come from the help pages of the commands (command_page.h), the names of config
// keys from the schema, and the jobs from their records. The scripts of the shells
// (completion_command.cpp) pass the words and show the result.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "launcher/jobs/known_jobs.h"
#include "launcher/manual/command_page.h"

namespace dslaunch::launcher {

// The words and the kind of files that complete the current word.
struct Completion {
    enum class Kind { kWords, kFiles, kFolders };

    Kind kind = Kind::kWords;  // kFiles, kFolders: names of files or folders are offered as well
    bool goes_on = false;      // true: no word is complete yet, so that no blank follows
    std::string prefix = {};   // the part of the current word before the value: "--config="
    struct Offer {
        std::string word;  // without the prefix
        std::string text;  // one line that explains the word; may be empty
    };
    std::vector<Offer> offers = {};  // each begins with the current word after the prefix
};

// The sources of the words.
struct CompletionSources {
    PageSource pages;
    std::function<std::vector<KnownJob>()> jobs;
};

// Returns the completion of the last of WORDS. WORDS are the words after `dslaunch`, and the last
// one may be empty. Throws the errors of SOURCES. REQUIRES: WORDS is not empty.
[[nodiscard]] Completion complete(std::span<const std::string> words,
                                  const CompletionSources& sources);

// Returns COMPLETION as lines for the shells. The first line has three fields, separated by tabs:
// the first is `words`, `files` or `folders`, the second `blank` or `goes-on`, and the third the
// prefix. Each further line is a word, with its explanation after a tab.
[[nodiscard]] std::string completion_lines(const Completion& completion);

}  // namespace dslaunch::launcher
