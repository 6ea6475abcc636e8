// Another process holds the port at which the ranks should meet.
#include "support/catch.h"
#include "support/listener.h"
#include "support/train_job.h"

namespace dslaunch::test {

TEST_CASE("a master port that is taken ends with the set-up code and names who holds it") {
    const Listener holder = listen_on_loopback();
    const std::string port = std::to_string(holder.port);
    const TemporaryFolder folder;
    std::ifstream facts(fixture_path("models/gpt.json"));
    write_file(folder.path() + "/config.json", fixture_config(Json::parse(facts), 1, 2).dump());
    const std::vector<std::string> common = {kDslaunch, "--num_gpus",    "2",  "--device",
                                             "cpu",     "--master_port", port, "--no-output"};
    for (const std::vector<std::string>& target :
         {std::vector<std::string>{"/bin/true"},
          {fixture_path("models/gpt.pt"), "--config", folder.path() + "/config.json"}}) {
        std::vector<std::string> words = common;
        words.insert(words.end(), target.begin(), target.end());
        JobProcess process(folder, words);
        const int code = process.wait();
        INFO(process.err());
        CHECK(code == 71);
        CHECK(process.err().find(":" + port + " where the ranks meet") != std::string::npos);
        CHECK(process.err().find("by process " + std::to_string(::getpid()) + " (") !=
              std::string::npos);
        CHECK(process.err().find("test_fault") != std::string::npos);
    }
}

}  // namespace dslaunch::test
