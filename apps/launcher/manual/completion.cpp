#include "launcher/manual/completion.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/text.h"
#include "base/text/option_name.h"
#include "config/schema/schema.h"
#include "launcher/options/run_options.h"

namespace dslaunch::launcher {
namespace {

using OfferKind = Completion::Kind;

// Returns true if NAME contains one of PARTS.
bool names_one(std::string_view name, std::initializer_list<std::string_view> parts) {
    return std::ranges::any_of(parts,
                               [&](std::string_view part) { return name.find(part) != name.npos; });
}

// Returns the values that a config key accepts, as far as they can be listed.
std::vector<std::string> values_of(const config::KeySpec& key) {
    std::vector<std::string> values;
    if (key.type == config::KeyType::kBool) values = {"true", "false"};
    const bool is_range = key.allowed.starts_with('>') || key.allowed == "0..1";
    if (!key.allowed.empty() && !is_range) values = split(key.allowed, '|');
    if (config::takes_auto(key) && key.type != config::KeyType::kObject &&
        key.type != config::KeyType::kFree)
        values.emplace_back("auto");
    return values;
}

class Completer {
  public:
    Completer(std::span<const std::string> words, const CompletionSources& sources)
        : given_(words.first(words.size() - 1)), current_(words.back()), sources_(sources) {}

    Completion run() {
        if (given_.empty()) return first_word();
        const HelpPage top = sources_.pages({});
        const bool only_names = given_[0] == "help" || (given_[0] == "man" && !has_options());
        size_t next = only_names ? 1 : 0;
        page_ = top;
        while (next < given_.size() && is_subcommand(given_[next])) {
            path_.push_back(given_[next++]);
            page_ = sources_.pages(path_);
        }
        const bool has_subcommands = !entries_of(page_, "subcommands").empty();
        if (only_names) return next == given_.size() ? subcommands() : Completion{};
        if (path_.empty()) {
            path_ = {"run"};
            page_ = sources_.pages(path_);
        } else if (has_subcommands && !current_.starts_with('-')) {
            return next == given_.size() ? subcommands() : Completion{};
        }
        take_form();
        read_given(next);
        return current_word();
    }

  private:
    [[nodiscard]] bool has_options() const {
        return current_.starts_with('-') ||
               std::ranges::any_of(given_, [](const auto& word) { return word.starts_with('-'); });
    }

    [[nodiscard]] bool is_subcommand(const std::string& word) const {
        const auto entries = entries_of(page_, "subcommands");
        return std::ranges::find(entries, word, &HelpEntry::head) != entries.end();
    }

    // Completes the first word, which is a subcommand, or the target or an option of `run`.
    Completion first_word() {
        if (current_.starts_with('-')) {
            page_ = sources_.pages({"run"});
            return option_names();
        }
        page_ = sources_.pages({});
        Completion completion = subcommands();
        add(completion, "help", "shows the options of a subcommand");
        completion.kind = OfferKind::kFiles;
        return completion;
    }

    // Uses the page of a form such as `ps --devices` instead of the command's page, if the words
    // have this form.
    void take_form() {
        for (const CommandPath& form :
             {CommandPath{"ps", "--devices"}, CommandPath{"stop", "--pid"}})
            if (path_.size() == 1 && path_.front() == form.front() &&
                std::ranges::any_of(given_, [&](const std::string& word) {
                    return word == form.back() || word.starts_with(form.back() + "=");
                }))
                page_ = sources_.pages(form);
    }

    // Reads the words after the command. Finds the option that waits for a value, and counts the
    // words.
    void read_given(size_t next) {
        for (; next < given_.size(); ++next) {
            const std::string& word = given_[next];
            if (pending_) {
                pending_.reset();
            } else if (only_words_ || word.size() < 2 || word.front() != '-') {
                ++words_;
                if (ends_options(word)) is_program_ = true;
            } else if (word == "--") {
                only_words_ = true;
            } else if (const HelpEntry* entry = option_entry(word)) {
                used_.insert(entry);
                const OptionHead head = parse_head(entry->head);
                const bool waits = !head.value_name.empty() && !head.value_is_optional &&
                                   word.find('=') == word.npos;
                if (waits) pending_ = *entry;
            }
        }
    }

    // Returns true if the words after WORD belong to a program and not to dslaunch.
    [[nodiscard]] bool ends_options(const std::string& word) const {
        if (path_.front() == "exec") return true;
        if (path_.front() != "run") return false;
        RunOptions options;
        options.target = word;
        return target_kind_of(options) != launch::TargetKind::kModel;
    }

    [[nodiscard]] const HelpEntry* option_entry(const std::string& word) const {
        const std::string name = with_dashes(word.substr(0, word.find('=')));
        for (const HelpGroup& group : page_.groups)
            for (const HelpEntry& entry : group.entries)
                if (entry.head.starts_with('-'))
                    for (const std::string& own : parse_head(entry.head).names)
                        if (own == name) return &entry;
        return nullptr;
    }

    Completion current_word() {
        if (is_program_) return {.kind = OfferKind::kFiles};
        if (pending_) return value(*pending_, current_, "");
        if (only_words_ || !current_.starts_with('-')) return plain_word();
        const size_t equals = current_.find('=');
        if (equals == current_.npos) return option_names();
        const HelpEntry* const entry = option_entry(current_);
        if (entry == nullptr || parse_head(entry->head).value_name.empty()) return {};
        return value(*entry, current_.substr(equals + 1), current_.substr(0, equals + 1));
    }

    // Completes a word that is not an option, with the arguments in the page.
    Completion plain_word() {
        const auto arguments = entries_of(page_, "arguments");
        if (arguments.empty()) {
            const bool takes_words =
                page_.usage.empty() || !page_.usage.front().ends_with("[options]");
            return {.kind = takes_words ? OfferKind::kFiles : OfferKind::kWords};
        }
        const HelpEntry& argument = arguments[std::min(words_, arguments.size() - 1)];
        if (words_ >= arguments.size() && argument.choices.empty() &&
            !names_one(argument.head, {"FILE", "NAME"}))
            return {};
        Completion completion = value(argument, current_, "");
        const bool is_file = completion.kind == OfferKind::kWords && completion.offers.empty() &&
                             argument.choices.empty() && !names_one(argument.head, {"KEY", "JOB"});
        if (is_file) completion.kind = OfferKind::kFiles;
        return completion;
    }

    Completion subcommands() const {
        Completion completion;
        for (const HelpEntry& entry : entries_of(page_, "subcommands"))
            add(completion, entry.head, entry.text);
        return completion;
    }

    // Offers the names of options that are not given yet. A user who writes `_` in names gets names
    // with `_`.
    Completion option_names() const {
        Completion completion;
        const bool underscores = current_.find('_') != current_.npos;
        const std::string typed = with_dashes(current_);
        for (const HelpGroup& group : page_.groups)
            for (const HelpEntry& entry : group.entries) {
                if (!entry.head.starts_with('-')) continue;
                if (used_.contains(&entry) && entry.text.find("repeatable") == std::string::npos)
                    continue;
                const OptionHead head = parse_head(entry.head);
                for (const std::string& name : head.names) {
                    if (!name.starts_with(typed)) continue;
                    // An option with a short name has a long name too, which says more.
                    if (!name.starts_with("--") && head.names.size() > 1 && typed != name) continue;
                    std::string word = name;
                    if (underscores) std::replace(word.begin() + 2, word.end(), '-', '_');
                    completion.offers.push_back({word, entry.text});
                }
            }
        return completion;
    }

    // Completes TEXT, a value for the option or argument ENTRY. PREFIX is the part of the current
    // word before TEXT, such as "--config=".
    Completion value(const HelpEntry& entry, const std::string& text, const std::string& prefix) {
        Completion completion{.prefix = prefix};
        const std::string name =
            entry.head.starts_with('-') ? parse_head(entry.head).value_name : entry.head;
        current_ = text;
        if (!entry.choices.empty()) {
            for (const std::string& choice : entry.choices) add(completion, choice, "");
        } else if (name == "KEY=VALUE") {
            add_assignments(completion);
        } else if (name == "KEY") {
            for (const config::KeySpec& key : config::schema()) add(completion, key.path, key.doc);
        } else if (name == "JOB") {
            add_jobs(completion);
            completion.kind = OfferKind::kFolders;  // a job's --output folder names the job too
        } else if (names_one(name, {"DIR", "FOLDER"})) {
            completion.kind = OfferKind::kFolders;
        } else if (names_one(name, {"FILE", "PATH", "MODEL", "TARGET", "ADAPTER", "CHECKPOINT"}) &&
                   name.find('=') == name.npos) {
            completion.kind = OfferKind::kFiles;
        }
        return completion;
    }

    // Offers config keys, section by section, and after `=` the values of a key.
    void add_assignments(Completion& completion) {
        const size_t equals = current_.find('=');
        if (equals != current_.npos) {
            const config::KeySpec* const key = config::find_key(current_.substr(0, equals));
            completion.prefix += current_.substr(0, equals + 1);
            current_.erase(0, equals + 1);
            if (key != nullptr)
                for (const std::string& one : values_of(*key)) add(completion, one, "");
            return;
        }
        completion.goes_on = true;
        std::set<std::string> sections;
        for (const config::KeySpec& key : config::schema()) {
            if (!key.path.starts_with(current_) || names_one(key.path, {"*", "[]"}) ||
                key.type == config::KeyType::kObject || key.status == config::KeyStatus::kNotYet)
                continue;
            const size_t dot = key.path.find('.', current_.size());
            if (dot == key.path.npos) {
                add(completion, key.path + "=", key.doc);
            } else if (const std::string section = key.path.substr(0, dot);
                       sections.insert(section).second) {
                const config::KeySpec* const spec = config::find_key(section);
                add(completion, section + ".", spec == nullptr ? "" : spec->doc);
            }
        }
    }

    void add_jobs(Completion& completion) const {
        for (const KnownJob& job : sources_.jobs()) {
            if (path_.front() == "stop" && !job.lives && job.state != "lost") continue;
            add(completion, job.id, fmt::format("{}, {}", state_text(job), job.target));
        }
    }

    // Offers WORD if it completes the current word.
    void add(Completion& completion, const std::string& word, const std::string& text) const {
        if (word.starts_with(current_)) completion.offers.push_back({word, text});
    }

    std::span<const std::string> given_;
    std::string current_;
    const CompletionSources& sources_;
    CommandPath path_;
    HelpPage page_;
    std::optional<HelpEntry> pending_;  // the option whose value is the current word
    std::set<const HelpEntry*> used_;   // options that are given; they are in page_
    size_t words_ = 0;                  // given words that are neither options nor their values
    bool only_words_ = false;           // `--` was given
    bool is_program_ = false;           // the current word belongs to a program
};

}  // namespace

Completion complete(std::span<const std::string> words, const CompletionSources& sources) {
    return Completer(words, sources).run();
}

std::string completion_lines(const Completion& completion) {
    constexpr std::string_view kKinds[] = {"words", "files", "folders"};
    std::string lines = fmt::format("{}\t{}\t{}\n", kKinds[static_cast<size_t>(completion.kind)],
                                    completion.goes_on ? "goes-on" : "blank", completion.prefix);
    for (const Completion::Offer& offer : completion.offers)
        lines += fmt::format("{}\t{}\n", printable(offer.word), printable(offer.text));
    return lines;
}

}  // namespace dslaunch::launcher
