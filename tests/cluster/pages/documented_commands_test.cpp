// The commands that README, docs and examples show in fenced blocks, run as a reader would run
// them, the pieces of configs beside them, and the commands in their sentences, whose options must
// exist. A page's commands share a folder, in their order, which begins with the model, the text
// and the hostfile that the README makes. What takes long is made short, what needs other hosts is
// planned with --dry-run, and what cannot run here stands in a table with its reason.
// docs/start/tutorial.md has a test of its own (tutorial_test.cpp).
#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/text.h"
#include "cluster/pages/page_commands.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/skip.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

namespace fs = std::filesystem;

const std::string kSource = test::source_dir();
const std::string kDocumentedCommandsBinaries = test::binary_dir();
// The configs that BLOCK shows, each beginning at the start of a line, with braces around those
// that are a part of one. Those with something left out are none.
std::vector<std::string> configs_of(const Block& block) {
    std::vector<std::string> pieces;
    for (const std::string& line : split(block.text, '\n')) {
        if (line.starts_with("{") || line.starts_with("\"")) pieces.emplace_back();
        if (!pieces.empty()) pieces.back() += line + "\n";
    }
    std::erase_if(pieces, [](const std::string& piece) {
        return mentions(piece, "…") || mentions(piece, "...") ||
               piece.find(':') == std::string::npos;
    });
    for (std::string& piece : pieces)
        if (piece.starts_with("\"")) piece = "{" + piece + "}";
    return pieces;
}

struct Change {
    const char* found;
    const char* put;
};

// Words that take long, or name what is not there, and those that are tried in their place.
constexpr std::array<Change, 16> kChanges{{
    {"--context 2048", "--context 16"},
    {"--context 512", "--context 32"},
    {"--epochs 1", "--steps 2"},
    {"--save-interval 200", "--save-interval 1"},
    {"step-100", "step-1"},
    {"step-200", "step-2"},
    {"--tokens 400", "--tokens 4"},
    {"--size small", "--size tiny"},
    {"--width 192 --heads 6", "--width 32 --heads 2"},
    {"--strip-prefix model. ", ""},  // names of this model have no such prefix
    {"*.mlp.*", "*.fc.*"},
    {"--deepspeed_config ds_config.json",
     "--deepspeed_config examples/gpt-kjv/ds_config.json "
     "--data kjv.tokens"},
    {"/nvme", "."},
    {"/usr/share/dslaunch/examples/gpt-kjv/", ""},
    {"../../hostfiles/", "hostfiles/"},
    {"--port 8000", "--port 0"},
}};

// Commands that are not run here, and the reason. Each must stand on its page.
struct Exception {
    const char* page;
    const char* begin;
    const char* reason;
};
constexpr const char* kBuilds = "it builds this tree, which the tests are run from";
constexpr const char* kInstalls = "tools/package-check.sh installs the packages from nothing";
constexpr const char* kUploads = "it sends to a service; monitor_test reads what it would send";
constexpr const char* kExample = "examples_test runs the script";
constexpr const char* kCluster = "it needs a Kubernetes cluster";
constexpr const char* kNotAsGguf =
    "a tokenizer of whole words cannot be a part of GGUF; gguf_model_test writes and reads files";
constexpr std::array<Exception, 27> kExceptions{{
    {"README.md", "make build", kBuilds},
    {"docs/guide/checkpoints.md", "python -c 'import transformers", "Python is not in the tests"},
    {"docs/guide/gguf.md", "dslaunch compress SmolLM2", kNotAsGguf},
    {"docs/guide/gguf.md", "dslaunch generate SmolLM2-Q4_K_M.gguf", kNotAsGguf},
    {"docs/guide/gguf.md", "dslaunch model import", kNotAsGguf},
    {"docs/guide/launchers.md", "dslaunch agent", "join_test starts agents that join"},
    {"docs/guide/models.md", "dslaunch model import Qwen2.5.gguf", kNotAsGguf},
    {"docs/reference/metrics.md", "dslaunch-upload wandb", kUploads},
    {"docs/reference/metrics.md", "dslaunch-upload comet", kUploads},
    {"docs/reference/metrics.md", "dslaunch-upload mlflow", kUploads},
    {"docs/reference/metrics.md", "dslaunch-upload trackio", kUploads},
    {"docs/start/install.md", "tar --zstd", kInstalls},
    {"docs/start/install.md", "apt install", kInstalls},
    {"docs/start/install.md", "pip install build", kInstalls},
    {"docs/start/install.md", "pip install --no-deps", kInstalls},
    {"docs/start/install.md", "make build", kBuilds},
    {"docs/start/install.md", "make cross", "it fetches 420 MB and builds for ARM"},
    {"docs/start/install.md", "make demo", "tools/demo.sh runs the commands of examples/gpt-kjv"},
    {"docs/start/install.md", "make test", kBuilds},
    {"docs/start/tutorial.md", "", "tutorial_test runs them in order"},
    {"examples/engine/README.md", "", "library_test builds and runs the program"},
    {"examples/kubernetes/README.md", "kubectl create", kCluster},
    {"examples/kubernetes/README.md", "kubectl apply", kCluster},
    {"examples/kubernetes/README.md", "kubectl logs", kCluster},
    {"examples/python/README.md", "dslaunch", "python_test starts the scripts"},
    {"examples/qwen2.5-lora/README.md", "", kExample},
    {"examples/simple/README.md", "", kExample},
}};

// Returns the exception for COMMAND of PAGE; null: it is run.
const Exception* exception_of(const std::string& page, const std::string& command) {
    const auto* const found = std::ranges::find_if(kExceptions, [&](const Exception& each) {
        return page == each.page && command.starts_with(each.begin);
    });
    return found == kExceptions.end() ? nullptr : found;
}

// Words of commands that wait for other hosts, or are one of those hosts.
constexpr std::array<const char*, 2> kOfOtherHosts = {"--listen 10.0.0.1",
                                                      "--master_addr 10.0.0.1"};

std::string shortened(std::string command, int steps) {
    for (const Change& change : kChanges) {
        const size_t at = command.find(change.found);
        if (at != std::string::npos)
            command.replace(at, std::string_view(change.found).size(), change.put);
    }
    const bool other_hosts = std::ranges::any_of(
        kOfOtherHosts, [&](const char* words) { return command.find(words) != std::string::npos; });
    const bool trains = std::regex_search(command, std::regex("^dslaunch (-|train\\.pt)"));
    if (trains) command += fmt::format(" --steps {}", steps);
    if (other_hosts) command += " --dry-run";
    return command;
}

class Reader {
  public:
    Reader() {
        for (const char* folder : {"hostfiles", "examples"})
            fs::create_directory_symlink(kSource + "/" + folder, at(folder));
        std::ofstream text(at("kjv.txt"));
        for (int i = 0; i < 4'000; ++i) text << "In the beginning was line " << i << ".\n";
        text.close();
        std::ofstream(at("genesis.tokens")) << std::string(40'000, '\0');  // 20,000 tokens
        std::ofstream(at("hostfile")) << "localhost slots=2\n";
        fs::copy(kSource + "/examples/gpt-kjv/ds_config.json", at("ds_config.json"));
        fs::create_directory(at("smollm2"));
        std::ofstream(at("smollm2/config.json")) << "{}\n";
        for (const char* folder : {"Qwen2.5-0.5B", "SmolLM2", "hub"}) make_chat_model(folder);
        fs::copy(fixture_path("huggingface/qwen2"), at("Qwen2.5-14B"));
        std::ofstream chats(at("chats.jsonl"));
        for (int i = 0; i < 200; ++i)
            chats << R"({"messages": [{"role": "user", "content": "What is )" << i
                  << R"(?"}, {"role": "assistant", "content": "A number, as )" << i + 1
                  << R"( is."}]})" << '\n';
        chats.close();
        std::ofstream pairs(at("pairs.jsonl"));
        for (int i = 0; i < 20; ++i)
            pairs << R"({"prompt": "What is )" << i << R"(?", "chosen": "A number, as )" << i + 1
                  << R"( is.", "rejected": "No number."})" << '\n';
        pairs.close();
        for (const char* name : {"book.jsonl", "held-out.jsonl"}) {
            std::ofstream book(at(name));
            for (int i = 0; i < 20; ++i)
                book << R"({"text": "It was line )" << i << R"( of a book."})" << '\n';
        }
        fs::create_directory(at("torchvision"));
        fs::copy(kDocumentedCommandsBinaries + "/libdsl_test_operators.so",
                 at("torchvision/_C.so"));
        // This stands for Debian's program of that name, which pages redirect into kjv.txt.
        make_program("bible", "seq 4000 | sed 's/^/In the beginning was line /'\n");
        // Bytes below the 61 entries of its vocabulary.
        std::ofstream numbers(at("numbers.txt"));
        for (int i = 0; i < 4'000; ++i) numbers << i << ' ';
    }
    // Puts a program into the PATH of `run` that copies a model as `hf download` would fetch it.
    void make_hub() const {
        fs::remove_all(at("SmolLM2"));
        make_program("hf", "[ $# = 4 ] && [ $1 = download ] && [ $3 = --local-dir ] && cp -r " +
                               at("hub") + " \"$4\"\n");
    }
    // Returns the exit code of COMMAND, and its output.
    std::pair<int, std::string> run(const std::string& command) const {
        const std::string path =
            "PATH=" + at("bin") + ":" + kDocumentedCommandsBinaries + ":" + std::getenv("PATH");
        JobProcess job(folder_,
                       {"env", path, "sh", "-c", "cd " + folder_.path() + " && " + command});
        const int code = job.wait();
        return {code, job.out() + job.err()};
    }
    void require(const std::string& command) const {
        const auto [code, output] = run(command);
        INFO(command << "\n" << output);
        // Like diff's, the code 1 says that there are differences.
        CHECK(code == (command.starts_with("dslaunch ckpt diff") ? 1 : 0));
    }
    // Copies the files of FOLDER, a folder of examples.
    void take_example(const fs::path& folder) const {
        fs::copy(fs::path(kSource) / folder, folder_.path(),
                 fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    }
    // Runs COMMAND, a server, until it says where it listens, and ends it.
    void require_server(const std::string& command) const {
        const std::string path = "PATH=" + kDocumentedCommandsBinaries + ":" + std::getenv("PATH");
        JobProcess job(folder_,
                       {"env", path, "sh", "-c", "cd " + folder_.path() + " && exec " + command});
        const bool listens = wait_until([&] {
            return job.wait(1) >= 0 || mentions(job.out() + job.err(), "http://127.0.0.1:");
        });
        job.signal(SIGTERM);
        const int code = job.wait();
        INFO(command << "\n" << job.out() << job.err());
        CHECK(listens);
        CHECK(code == 0);
    }
    void make_model() const {
        require("dslaunch tokens bytes kjv.txt -o kjv.tokens");
        require("dslaunch tokens bytes numbers.txt -o corpus.tokens");
        require(
            "dslaunch model new gpt --size tiny --vocab 256 --width 32 --heads 2 --layers 4 "
            "--context 64 -o train.pt");
        require(
            "dslaunch pack train.pt --config examples/gpt-kjv/ds_config.json --data kjv.tokens");
    }

  private:
    // Writes a Hugging Face folder with a chat template, in which every word is the one token.
    void make_chat_model(const std::string& folder) const {
        fs::copy(fixture_path("huggingface/qwen2"), at(folder));
        std::ofstream(at(folder + "/tokenizer.json"))
            << R"({"model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},)"
            << R"( "pre_tokenizer": {"type": "Whitespace"}})";
        std::ofstream(at(folder + "/chat_template.jinja"))
            << "{% for message in messages %}{{ message.content }}{% endfor %}";
    }
    // Puts a shell script NAME into the PATH of `run`.
    void make_program(const std::string& name, const std::string& script) const {
        fs::create_directories(at("bin"));
        std::ofstream(at("bin/" + name)) << "#!/bin/sh\n" << script;
        fs::permissions(at("bin/" + name), fs::perms::owner_all);
    }
    [[nodiscard]] std::string at(const std::string& name) const {
        return folder_.path() + "/" + name;
    }
    TemporaryFolder folder_;
};

// Returns the anchor that GitHub gives to the heading LINE.
std::string anchor_of(const std::string& line) {
    std::string anchor;
    for (const char c : trim(std::string_view(line).substr(line.find_first_not_of('#')))) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == ' ') anchor += '-';
        if (c == '-' || c == '_' || byte >= 0x80 || std::isalnum(byte) != 0)
            anchor += static_cast<char>(std::tolower(byte));
    }
    return anchor;
}

bool has_anchor(const std::string& page, const std::string& anchor) {
    bool inside = false;
    for (const std::string& line : split(page_text(page), '\n')) {
        if (line.starts_with("```")) inside = !inside;
        if (!inside && line.starts_with("#") && anchor_of(line) == anchor) return true;
    }
    return false;
}

// Returns the links of PAGE that lead to no file and to no heading of the tree.
std::vector<std::string> dead_links_of(const std::string& page) {
    static const std::regex link(R"(\]\(([^)\s]+)\))");
    std::vector<std::string> dead;
    const std::string text = page_text(page);
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
        const std::string target = (*it)[1].str();
        if (target.find("://") != std::string::npos) continue;
        const size_t hash = target.find('#');
        const std::string file = target.substr(0, hash);
        const std::string path =
            file.empty() ? page : (fs::path(page).parent_path() / file).lexically_normal().string();
        const bool leads_to_heading = hash == std::string::npos || !path.ends_with(".md") ||
                                      !fs::exists(kSource + "/" + path) ||
                                      has_anchor(path, target.substr(hash + 1));
        if (!fs::exists(kSource + "/" + path) || !leads_to_heading)
            dead.push_back(page + ": " + target);
    }
    return dead;
}

// Runs COMMANDS of PAGE in their order; returns their number.
int run_page(const std::string& page, const std::vector<std::string>& commands) {
    INFO(page);
    const Reader reader;
    if (std::ranges::any_of(commands, [](const auto& c) { return c.starts_with("hf "); }))
        reader.make_hub();
    // README and the pages for the start make what they use.
    if (page.starts_with("docs/") && !page.starts_with("docs/start/")) reader.make_model();
    if (page.starts_with("examples/")) reader.take_example(fs::path(page).parent_path());
    int steps = 2;
    for (const std::string& command : commands) {
        const std::string shown = shortened(command, steps);
        if (command.starts_with("dslaunch serve"))
            reader.require_server(shown);
        else
            reader.require(shown);
        if (command.find("--output") != std::string::npos) steps += 2;
    }
    return static_cast<int>(commands.size());
}

// Returns the commands of dslaunch that PAGE names in its sentences and tables.
std::vector<std::string> commands_in_sentences(const std::string& page) {
    static const std::regex fenced("```[^`]*```"), code("`(dslaunch [^`]*)`"), blanks("\\s+");
    const std::string text = std::regex_replace(page_text(page), fenced, "");
    std::vector<std::string> commands;
    for (std::sregex_iterator it(text.begin(), text.end(), code), end; it != end; ++it)
        commands.push_back(std::regex_replace((*it)[1].str(), blanks, " "));
    return commands;
}

// The options of subcommands, as the programs' own help lists them.
class OptionNames {
  public:
    // Returns the first option in COMMAND that its subcommand does not have; empty: none.
    [[nodiscard]] std::string unknown_in(const std::string& command) {
        const std::vector<std::string> words = split(command, ' ');
        std::string help;
        size_t at = 1;
        for (size_t count = std::min<size_t>(words.size(), 4); count > 0 && help.empty(); --count) {
            help = help_of({words.begin() + 1, words.begin() + static_cast<std::ptrdiff_t>(count)});
            at = count;
        }
        static const std::regex option("^\\[?(--[a-z][a-z0-9_-]*).*");
        for (; at < words.size(); ++at) {
            // The words after it belong to a script or a program.
            if (words[at] == "--" || words[at].ends_with(".py")) break;
            std::smatch match;
            if (std::regex_match(words[at], match, option) && !has_word(help, match[1]))
                return match[1];
        }
        return "";
    }

  private:
    // Returns what `dslaunch WORDS --help` prints; empty: these words are no subcommand. Two
    // options choose what a subcommand does, and have a help of their own.
    const std::string& help_of(const std::vector<std::string>& words) {
        const std::string name = join(words, " ");
        const auto [found, is_new] = known_.try_emplace(name);
        if (!is_new || !is_subcommand(words)) return found->second;
        std::vector<std::string> command = {kDocumentedCommandsBinaries + "/dslaunch"};
        command.insert(command.end(), words.begin(), words.end());
        if (words.empty()) command.emplace_back("run");
        command.emplace_back("--help");
        JobProcess job(folder_, command);
        if (job.wait() == 0) found->second = job.out() + " ";
        return found->second;
    }
    // Returns true if WORDS, or none, name a subcommand; other words would be started as a program.
    [[nodiscard]] bool is_subcommand(const std::vector<std::string>& words) {
        static const std::set<std::string> groups = {"ckpt",  "config", "data",
                                                     "hosts", "model",  "tokens"};
        if (words.empty()) return true;
        if (subcommands_.empty()) {
            JobProcess job(folder_, {kDocumentedCommandsBinaries + "/dslaunch", "--help"});
            REQUIRE(job.wait() == 0);
            subcommands_ = job.out();
        }
        if (!mentions(subcommands_, "\n  " + words.front() + " ")) return false;
        if (words.size() == 1) return true;
        const std::string name = join(words, " ");
        const bool is_plain = std::ranges::all_of(words, [](const std::string& word) {
            return std::regex_match(word, std::regex("[a-z][a-z0-9_-]*"));
        });
        return name == "ps --devices" || name == "stop --pid" ||
               (groups.contains(words.front()) && is_plain);
    }
    // Returns true if HELP has the option WORD. Underscores and hyphens are the same in options.
    static bool has_word(std::string help, std::string word) {
        for (std::string* const text : {&help, &word}) std::ranges::replace(*text, '_', '-');
        for (size_t at = help.find(word); at != help.npos; at = help.find(word, at + 1)) {
            const char next = help[std::min(at + word.size(), help.size() - 1)];
            if (std::isalnum(static_cast<unsigned char>(next)) == 0 && next != '-') return true;
        }
        return false;
    }
    TemporaryFolder folder_;
    std::map<std::string, std::string> known_;  // by the subcommand's words
    std::string subcommands_;                   // what `dslaunch --help` lists
};

}  // namespace

TEST_CASE("every command that README, docs and examples show works") {
    if (!fs::exists(kDocumentedCommandsBinaries + "/dsworker"))
        return report_skipped("the commands of README and docs", "dsworker is not built");
    int seen = 0;
    std::set<const Exception*> met;
    for (const std::string& page : pages()) {
        std::vector<std::string> commands;
        for (const Block& block : blocks_of(page)) {
            if (!block.language.empty()) continue;
            for (const PageCommand& command : commands_of(block)) {
                const Exception* const exception = exception_of(page, command.line);
                if (exception == nullptr)
                    commands.push_back(command.line);
                else
                    met.insert(exception);
            }
        }
        if (!commands.empty()) seen += run_page(page, commands);
    }
    std::printf("%d commands of pages were run\n", seen);
    CHECK(seen >= 90);
    for (const Exception& each : kExceptions) {
        INFO(each.page << ": " << each.begin << " stands in the table, but not on the page");
        CHECK(met.contains(&each));
    }
}

TEST_CASE("every subcommand and option that pages name in their sentences exists") {
    OptionNames names;
    int seen = 0;
    for (const std::string& page : pages()) {
        if (page.starts_with("docs/dev/")) continue;  // of what programs say to each other
        for (const std::string& command : commands_in_sentences(page)) {
            INFO(page << ": " << command);
            CHECK(names.unknown_in(command) == "");
            ++seen;
        }
    }
    CHECK(seen >= 150);
}

TEST_CASE("the README's four commands lead from a download and chats to an answer") {
    if (!fs::exists(kDocumentedCommandsBinaries + "/dsworker"))
        return report_skipped("the commands of the README", "dsworker is not built");
    const Reader reader;
    reader.make_hub();
    int run = 0;
    for (const Block& block : blocks_of("README.md")) {
        if (!block.text.starts_with("hf download ")) continue;
        const std::string joined = std::regex_replace(block.text, std::regex("\\\\\\n\\s*"), "");
        for (const std::string& command : split(joined, '\n')) {
            if (trim(command).empty()) continue;
            const auto [code, output] = reader.run(command);
            INFO(command << "\n" << output);
            CHECK(code == 0);
            CHECK((run != 2 || output.find(" steps are 8 passes") != std::string::npos));
            ++run;
        }
    }
    CHECK(run == 4);
}

TEST_CASE("every link of the pages leads to a file and a heading that are there") {
    std::vector<std::string> linking = pages();
    linking.insert(linking.end(), {"CHANGELOG.md", "CONTRIBUTING.md"});
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kSource + "/examples"))
        if (entry.path().extension() == ".md")
            linking.push_back(entry.path().lexically_relative(kSource).string());
    std::string dead;
    for (const std::string& page : linking)
        for (const std::string& link : dead_links_of(page)) dead += link + "\n";
    INFO(dead);
    CHECK(dead.empty());
}

TEST_CASE("every piece of a config that README and docs show is right") {
    int seen = 0;
    const TemporaryFolder folder;
    for (const std::string& page : pages()) {
        for (const Block& block : blocks_of(page)) {
            for (const std::string& piece : configs_of(block)) {
                std::ofstream(folder.path() + "/ds.json") << piece;
                JobProcess check(folder, {kDocumentedCommandsBinaries + "/dslaunch", "config",
                                          "check", folder.path() + "/ds.json"});
                const int code = check.wait();
                INFO(page << "\n" << piece << "\n" << check.err());
                CHECK(code == 0);
                ++seen;
            }
        }
    }
    CHECK(seen >= 6);
}
