// docs/start/tutorial.md from its first command to its last, in their order, as a reader would run
// them: with hosts made of network namespaces, which have nothing of it until it is pushed. Its
// files are the blocks that it says to save. What takes long is made short; what a comment says
// (Ctrl-C, a host that is lost) happens.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "cluster/pages/page_commands.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/listener.h"
#include "support/rig_hosts.h"
#include "support/skip.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

namespace fs = std::filesystem;

constexpr const char* kPage = "docs/start/tutorial.md";

// Words that take long, and what is tried in their place.
const std::vector<std::pair<std::string, std::string>> kShorter = {
    {R"("train_batch_size": 48)", R"("train_batch_size": 12)"},
    {R"("steps": 300)", R"("steps": 8)"},
    {R"("eval_interval": 50)", R"("eval_interval": 4)"},
    {R"("interval": 100)", R"("interval": 4)"},
    {"--steps 100 ", "--steps 4 "},
    {"--steps 2000 --eval-interval 20", "--steps 40 --eval-interval 4"},
    {"--steps 600", "--steps 400"},
    {"--save-interval 20 -o elastic", "--save-interval 4 --steps 300 -o elastic"},
    {"--tokens 60", "--tokens 4"},
};

std::string replaced(std::string text, const std::string& found, const std::string& put) {
    for (size_t at = 0; (at = text.find(found, at)) != text.npos; at += put.size())
        text.replace(at, found.size(), put);
    return text;
}

// Returns the number of steps that metrics.jsonl in FOLDER tells.
int64_t steps_in(const std::string& folder) {
    return count_of(content_of(folder + "/metrics.jsonl"), "\"loss\"");
}

class Tutorial {
  public:
    Tutorial() : rig_({.count = kHosts, .what = kPage, .private_folder = folder_.path()}) {
        if (!rig_.usable()) return;
        fs::create_directory(at("bin"));
        for (const char* name : {"dslaunch", "dsworker"})
            fs::copy(std::string(test::binary_dir()) + "/" + name, at("bin/") + name);
        make_chat_model();
    }
    [[nodiscard]] bool usable() const { return rig_.usable(); }
    [[nodiscard]] std::string at(const std::string& name) const {
        return folder_.path() + "/" + name;
    }

    // Writes the file that the text above BLOCK says to save; returns false if it says no such
    // thing.
    [[nodiscard]] bool save(const Block& block) const {
        static const std::regex saves("as `([^`/]+)`:$");
        std::smatch match;
        if (!std::regex_search(block.before, match, saves)) return false;
        write_file(at(match[1].str()), shortened(block.text));
        return true;
    }

    void run(const PageCommand& command) {
        std::string line = replaced(shortened(command.line), "/usr/share/dslaunch/",
                                    std::string(source_dir()) + "/");
        line = replaced(line, "8000", std::to_string(port_));
        if (line.starts_with("tensorboard"))
            return;  // a stock one reads these files in monitor_test
        if (line.starts_with("dslaunch serve")) return serve(line);
        if (line.starts_with("curl") && !has_program("curl")) return end_server();
        const TemporaryFolder streams;
        JobProcess job(streams, started(line));
        const bool is_stopped = mentions(command.comment, "Ctrl-C");
        if (is_stopped) {
            await_steps(job, line);
            job.signal(SIGINT);
        }
        if (mentions(command.comment, "n4")) {
            await_steps(job, line);
            lose_host();
        }
        const int code = job.wait();
        INFO(line << "\n" << job.out() << job.err());
        CHECK(code == (is_stopped ? 76 : 0));
        if (server_) end_server();
    }

  private:
    static constexpr int kHosts = 4;

    static std::string shortened(std::string text) {
        text += ' ';
        for (const auto& [found, put] : kShorter) text = replaced(text, found, put);
        return std::string(trim(text));
    }
    [[nodiscard]] std::vector<std::string> started(const std::string& line) const {
        return rig_.on(0, {"env", "PATH=" + at("bin") + ":" + std::getenv("PATH"),
                           "XDG_STATE_HOME=" + at("state"), "OMP_NUM_THREADS=1",
                           "DSLAUNCH_SSH_CONFIG=" + rig_.config("good"), "sh", "-c",
                           "cd " + folder_.path() + " && exec " + line});
    }
    // Waits until the job of LINE has done some steps.
    void await_steps(JobProcess& job, const std::string& line) const {
        std::smatch match;
        REQUIRE(std::regex_search(line, match, std::regex(" -o (\\S+)")));
        const std::string output = at(match[1].str());
        const bool stepped =
            wait_until([&] { return job.wait(1) >= 0 || steps_in(output) >= kSteps; });
        INFO(line << "\n" << job.err());
        REQUIRE(stepped);
        REQUIRE(job.wait(1) < 0);
    }
    static constexpr int64_t kSteps = 6;

    // Ends everything on the last host, its sshd too.
    void lose_host() const {
        REQUIRE(RigHosts::run(
                    {"sh", "-c", "kill -KILL $(ip netns pids " + rig_.name(kHosts) + ")"}) == 0);
    }
    // Starts LINE, a server, which the next command asks.
    void serve(const std::string& line) {
        server_ = std::make_unique<JobProcess>(server_streams_, started(line));
        const bool listens = wait_until([&] {
            return server_->wait(1) >= 0 ||
                   mentions(server_->out() + server_->err(), "http://127.0.0.1:");
        });
        INFO(line << "\n" << server_->out() << server_->err());
        REQUIRE(listens);
    }
    void end_server() {
        server_->signal(SIGTERM);
        CHECK(server_->wait() == 0);
        server_.reset();
    }
    // Writes a Hugging Face folder with a chat template, in which every word is the one token.
    void make_chat_model() const {
        const std::string folder = at("SmolLM2");
        fs::copy(fixture_path("huggingface/qwen2"), folder);
        write_file(folder + "/tokenizer.json",
                   R"({"model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},)"
                   R"( "pre_tokenizer": {"type": "Whitespace"}})");
        write_file(folder + "/chat_template.jinja",
                   "{% for message in messages %}{{ message.content }}{% endfor %}");
    }

    TemporaryFolder folder_;
    RigHosts rig_;
    TemporaryFolder server_streams_;
    std::unique_ptr<JobProcess> server_;
    int port_ = listen_on_loopback().port;  // it was free a moment ago
};

}  // namespace

TEST_CASE("each command of the tutorial works, in its order, over four hosts") {
    if (!fs::exists(std::string(test::binary_dir()) + "/dsworker"))
        return report_skipped(kPage, "dsworker is not built");
    Tutorial tutorial;
    if (!tutorial.usable()) return;
    int commands = 0;
    for (const Block& block : blocks_of(kPage)) {
        if (tutorial.save(block)) continue;
        for (const PageCommand& command : commands_of(block)) {
            tutorial.run(command);
            ++commands;
        }
    }
    CHECK(commands >= 25);
}
