// The best checkpoint of a job over hosts that share no disk: over ssh, saved on rank 0's disk,
// with a host that is lost after the best evaluation, so that the job goes on with fewer ranks.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "support/rig_hosts.h"
#include "support/train_job.h"

namespace dslaunch::test {
namespace {

namespace fs = std::filesystem;

// gpt.pt on the first COUNT hosts, each with an empty folder of its own where the results go.
class BestHosts {
  public:
    explicit BestHosts(int count)
        : rig_({.count = count,
                .what = "the best checkpoint over hosts",
                .private_folder = place()}),
          count_(count) {
        std::vector<std::string> hosts;
        for (int i = 1; i <= count_; ++i) hosts.push_back("n" + std::to_string(i));
        write_hosts(hosts);
    }
    [[nodiscard]] const RigHosts& rig() const { return rig_; }
    // Returns the --output folder as the launcher sees it; host n1 has its own at this path.
    [[nodiscard]] std::string output() const { return place() + "/out"; }
    [[nodiscard]] std::string output_of_first() const { return rig_.inside(1) + "/out"; }

    // Writes the hostfile: HOSTS, one slot each.
    void write_hosts(const std::vector<std::string>& hosts) const {
        std::string text;
        for (const std::string& host : hosts) text += host + " slots=1\n";
        write_file(folder_.path() + "/hostfile", text);
    }
    // Returns the command of a run whose held-out loss falls and then rises.
    [[nodiscard]] std::vector<std::string> command(const std::vector<std::string>& more) const {
        Json config = fixture_config(fixture_facts("gpt"), 1, 60);
        config["zero_optimization"] = {{"stage", 3}};
        config["gradient_clipping"] = 0.5;
        config["scheduler"] = {
            {"type", "WarmupLR"},
            {"params",
             {{"warmup_num_steps", 100}, {"warmup_max_lr", 1.0}, {"warmup_type", "linear"}}}};
        config["dslaunch"]["eval_interval"] = 4;
        config["dslaunch"]["patience"] = 3;
        config["dslaunch"]["data"]["eval_fraction"] = 0.5;
        config["dslaunch"]["save"] = {
            {"interval", 7}, {"keep", 1}, {"best", "eval_loss"}, {"via", "rank0"}};
        std::vector<std::string> options = {"--hostfile",   folder_.path() + "/hostfile",
                                            "--ssh-config", rig_.config("good"),
                                            "--env",        "OMP_NUM_THREADS=1"};
        options.insert(options.end(), more.begin(), more.end());
        std::vector<std::string> words =
            training_command(folder_, options, fixture_archive("gpt"), config);
        *std::ranges::find(words, folder_.path() + "/out") = output();
        words.insert(words.begin(), {"env", "XDG_STATE_HOME=" + folder_.path() + "/state"});
        return rig_.on(0, words);
    }
    // Returns the held-out losses by step, each by its last line.
    [[nodiscard]] std::map<int64_t, double> evaluations() const {
        std::map<int64_t, double> found = values_by_step(output(), "eval_loss");
        found.erase(0);  // before training
        return found;
    }
    [[nodiscard]] int64_t best() const {
        const auto found = evaluations();
        const auto least =
            std::ranges::min_element(found, {}, [](const auto& one) { return one.second; });
        return least == found.end() ? -1 : least->first;
    }
    // Checks that the run's result is its best checkpoint, on rank 0's disk and at the launcher.
    void check_result() const {
        const std::string exported = folder_.path() + "/exported.safetensors";
        const TemporaryFolder streams;
        JobProcess writes(streams,
                          {kDslaunch, "ckpt", "export", output_of_first() + "/best", exported});
        const int code = writes.wait();
        INFO(writes.err());
        REQUIRE(code == 0);
        CHECK(content_of(output_of_first() + "/checkpoints/best") ==
              "step-" + std::to_string(best()) + "\n");
        CHECK(content_of(output_of_first() + "/model.safetensors") == content_of(exported));
        CHECK(content_of(output() + "/model.safetensors") == content_of(exported));
    }

  private:
    [[nodiscard]] std::string place() const { return folder_.path() + "/place"; }

    TemporaryFolder folder_;
    RigHosts rig_;
    int count_;
};

}  // namespace

TEST_CASE("hosts without a common disk leave the weights of their best checkpoint") {
    if (!fs::exists(std::string(test::binary_dir()) + "/dsworker"))
        return report_skipped("the best checkpoint over hosts", "dsworker is not built");
    const BestHosts hosts(4);
    if (!hosts.rig().usable()) return;
    const TemporaryFolder streams;
    JobProcess job(streams, hosts.command({}));
    const int code = job.wait();
    INFO(job.err() << job.out());
    REQUIRE(code == 0);
    CHECK(hosts.evaluations().rbegin()->first == hosts.best() + 3 * 4);
    CHECK(mentions(job.out(), "of step " + std::to_string(hosts.best()) + ", the best"));
    hosts.check_result();
}

TEST_CASE("a job that loses a host after its best evaluation keeps that checkpoint") {
    if (!fs::exists(std::string(test::binary_dir()) + "/dsworker"))
        return report_skipped("the best checkpoint of an elastic job", "dsworker is not built");
    const BestHosts hosts(2);
    if (!hosts.rig().usable()) return;
    const TemporaryFolder streams;
    JobProcess job(streams, hosts.command({"--nnodes", "1:2", "--max-restarts", "2"}));
    // The loss has begun to rise, and the best checkpoint is there.
    REQUIRE(wait_until([&] {
        return job.wait(1) >= 0 || hosts.evaluations().size() > 1 + size_t(hosts.best() / 4);
    }));
    const int64_t before = hosts.best();
    REQUIRE(RigHosts::run(
                {"sh", "-c", "kill -KILL $(ip netns pids " + hosts.rig().name(2) + ")"}) == 0);
    const int code = job.wait();
    INFO(job.err() << job.out());
    REQUIRE(code == 0);
    CHECK(count_of(job.err(), "restart 1 of 2") == 1);
    CHECK(hosts.best() == before);
    hosts.check_result();
}

TEST_CASE("a resume whose first host is another one is refused with the host that has the saves") {
    if (!fs::exists(std::string(test::binary_dir()) + "/dsworker"))
        return report_skipped("a resume over other hosts", "dsworker is not built");
    const BestHosts hosts(2);
    if (!hosts.rig().usable()) return;
    const TemporaryFolder streams;
    JobProcess job(streams, hosts.command({"--steps", "8"}));
    REQUIRE(job.wait() == 0);
    hosts.write_hosts({"n2", "n1"});
    JobProcess resumed(streams, hosts.command({"--resume"}));
    const int code = resumed.wait();
    INFO(resumed.err());
    CHECK(code == 73);
    CHECK(mentions(resumed.err(), "has checkpoints there, but rank 0 is on another host now"));
    CHECK(mentions(resumed.err(), "first in the hostfile"));
    hosts.write_hosts({"n1", "n2"});
    JobProcess again(streams, hosts.command({"--resume"}));
    CHECK(again.wait() == 0);
    CHECK(mentions(again.err(), "resuming from"));
}

}  // namespace dslaunch::test
