// Runs the commands that README and docs show in fenced blocks, as a reader would run them, and
// checks the pieces of configs beside them. The commands of a file share a folder and run in their
// order. In the beginning, this folder contains the model, the text and the hostfile that the
// README makes. Commands that take long are shortened; commands that need other hosts run with
// --dry-run.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/text.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/skip.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

namespace fs = std::filesystem;

const std::string kSource = test::source_dir();
const std::string kBinaries = test::binary_dir();
constexpr size_t kPageBytesMax = 4U << 20;

struct Block {
    std::string page;  // "docs/reference/cli.md"
    std::string language;
    std::string text;
};

std::vector<std::string> pages() {
    std::vector<std::string> found = {"README.md"};
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kSource + "/docs"))
        if (entry.path().extension() == ".md")
            found.push_back(entry.path().lexically_relative(kSource).string());
    std::ranges::sort(found);
    return found;
}

std::vector<Block> blocks_of(const std::string& page) {
    std::vector<Block> blocks;
    bool inside = false;
    for (const std::string& line : split(read_file(kSource + "/" + page, kPageBytesMax), '\n')) {
        const std::string bare(trim(line));
        if (bare.starts_with("```")) {
            inside = !inside;
            if (inside) blocks.push_back({page, bare.substr(3), ""});
        } else if (inside) {
            blocks.back().text += line + "\n";
        }
    }
    return blocks;
}

// Returns the commands of BLOCK that begin with `dslaunch`, with continued lines joined and without
// comments. Leaves out lines of usage, which have brackets or words in capitals in place of names.
std::vector<std::string> commands_of(const Block& block) {
    std::vector<std::string> commands;
    const std::string joined = std::regex_replace(block.text, std::regex("\\\\\\n\\s*"), "");
    for (std::string line : split(joined, '\n')) {
        line = trim(line);
        if (line.starts_with("$ ")) line.erase(0, 2);
        line = trim(line.substr(0, line.find(" #")));
        const bool is_usage =
            line.find('[') != std::string::npos || line.find("SUBCOMMAND") != std::string::npos;
        if (line.starts_with("dslaunch ") && !is_usage) commands.push_back(line);
    }
    return commands;
}

// Returns the configs that BLOCK shows, each of which begins at the start of a line. Adds braces
// around pieces of configs. Leaves out configs that BLOCK shows only in part (…).
std::vector<std::string> configs_of(const Block& block) {
    std::vector<std::string> pieces;
    for (const std::string& line : split(block.text, '\n')) {
        if (line.starts_with("{") || line.starts_with("\"")) pieces.emplace_back();
        if (!pieces.empty()) pieces.back() += line + "\n";
    }
    std::erase_if(pieces, [](const std::string& piece) {
        return piece.find("…") != std::string::npos || piece.find(':') == std::string::npos;
    });
    for (std::string& piece : pieces)
        if (piece.starts_with("\"")) piece = "{" + piece + "}";
    return pieces;
}

struct Change {
    const char* found;
    const char* put;
};

// Words that make a command slow or name something that does not exist, and the words that replace
// them.
constexpr std::array<Change, 14> kChanges{{
    {"--context 2048", "--context 16"},
    {"--context 512", "--context 32"},
    {"--epochs 1", "--steps 2"},
    {"--save-interval 200", "--save-interval 1"},
    {"step-100", "step-1"},
    {"step-200", "step-2"},
    {"--tokens 400", "--tokens 4"},
    {"--size small", "--size tiny"},
    {"--width 192 --heads 6", "--width 32 --heads 2"},
    {"--strip-prefix model. ", ""},  // this model's names have no such prefix
    {"*.mlp.*", "*.fc.*"},
    {"--deepspeed_config ds_config.json",
     "--deepspeed_config examples/gpt-kjv/ds_config.json "
     "--data kjv.tokens"},
    {"/nvme", "."},
    {"/usr/share/dslaunch/examples/gpt-kjv/", ""},
}};

// Words of commands that wait for other hosts, or that run on one of those hosts.
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
        fs::copy(kSource + "/tests/fixtures/huggingface/qwen2", at("Qwen2.5-14B"));
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
        std::ofstream book(at("book.jsonl"));
        for (int i = 0; i < 20; ++i)
            book << R"({"text": "It was line )" << i << R"( of a book."})" << '\n';
        book.close();
        fs::create_directory(at("torchvision"));
        fs::copy(kBinaries + "/libdsl_test_operators.so", at("torchvision/_C.so"));
        // Each token is below 61, the number of entries in the vocabulary.
        std::ofstream numbers(at("numbers.txt"));
        for (int i = 0; i < 4'000; ++i) numbers << i << ' ';
    }
    // Puts a program `hf` into the PATH of run(). It copies a model as `hf download` would fetch
    // it.
    void make_hub() const {
        const std::string script = at("bin/hf");
        fs::create_directory(at("bin"));
        fs::remove_all(at("SmolLM2"));
        std::ofstream(script) << "#!/bin/sh\n[ $# = 4 ] && [ $1 = download ] && "
                              << "[ $3 = --local-dir ] && cp -r " << at("hub") << " \"$4\"\n";
        fs::permissions(script, fs::perms::owner_all);
    }
    // Runs COMMAND and returns its exit code and its output.
    std::pair<int, std::string> run(const std::string& command) const {
        const std::string path = "PATH=" + at("bin") + ":" + kBinaries + ":" + std::getenv("PATH");
        JobProcess job(folder_,
                       {"env", path, "sh", "-c", "cd " + folder_.path() + " && " + command});
        const int code = job.wait();
        return {code, job.out() + job.err()};
    }
    void require(const std::string& command) const {
        const auto [code, output] = run(command);
        INFO(command << "\n" << output);
        // Like diff, `dslaunch ckpt diff` ends with 1 if there are differences.
        CHECK(code == (command.starts_with("dslaunch ckpt diff") ? 1 : 0));
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
    // Writes a Hugging Face folder with a chat template. Its tokenizer turns every word into the
    // same token.
    void make_chat_model(const std::string& folder) const {
        fs::copy(kSource + "/tests/fixtures/huggingface/qwen2", at(folder));
        std::ofstream(at(folder + "/tokenizer.json"))
            << R"({"model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},)"
            << R"( "pre_tokenizer": {"type": "Whitespace"}})";
        std::ofstream(at(folder + "/chat_template.jinja"))
            << "{% for message in messages %}{{ message.content }}{% endfor %}";
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
    for (const std::string& line : split(read_file(kSource + "/" + page, kPageBytesMax), '\n')) {
        if (line.starts_with("```")) inside = !inside;
        if (!inside && line.starts_with("#") && anchor_of(line) == anchor) return true;
    }
    return false;
}

// Returns the links of PAGE that lead to no file and to no heading of the tree.
std::vector<std::string> dead_links_of(const std::string& page) {
    static const std::regex link(R"(\]\(([^)\s]+)\))");
    std::vector<std::string> dead;
    const std::string text = read_file(kSource + "/" + page, kPageBytesMax);
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

}  // namespace

TEST_CASE("every command that README and docs show works") {
    if (!fs::exists(kBinaries + "/dsworker"))
        return report_skipped("the commands of README and docs", "dsworker is not built");
    int seen = 0;
    for (const std::string& page : pages()) {
        std::vector<std::string> commands;
        for (const Block& block : blocks_of(page))
            for (std::string& command : commands_of(block)) commands.push_back(std::move(command));
        if (commands.empty()) continue;
        const Reader reader;
        // The README and the pages of docs/start make the model themselves.
        if (page != "README.md" && !page.starts_with("docs/start/")) reader.make_model();
        int steps = 2;
        for (const std::string& command : commands) {
            // `dslaunch agent` needs a job's host, and `dslaunch serve` runs until it is ended.
            if (command.starts_with("dslaunch agent") || command.starts_with("dslaunch serve"))
                continue;
            INFO(page);
            reader.require(shortened(command, steps));
            ++seen;
            if (command.find("--output") != std::string::npos) steps += 2;
        }
    }
    CHECK(seen >= 18);
}

TEST_CASE("the README's four commands lead from a download and chats to an answer") {
    if (!fs::exists(kBinaries + "/dsworker"))
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
                JobProcess check(folder, {kBinaries + "/dslaunch", "config", "check",
                                          folder.path() + "/ds.json"});
                const int code = check.wait();
                INFO(page << "\n" << piece << "\n" << check.err());
                CHECK(code == 0);
                ++seen;
            }
        }
    }
    CHECK(seen >= 6);
}
