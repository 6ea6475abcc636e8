// A resumed run uses the data that it began with, even if their path has changed. With --new-data,
// it begins other data.
#include "base/fd.h"
#include "support/saving_job.h"

namespace dslaunch::test {

using namespace storage;
namespace {

// A job of one rank whose data lie in its folder.
class DataJob {
  public:
    DataJob() {
        job_.steps = 3;
        job_.ranks = 1;
        const Json config = fixture_config(fixture_facts(job_.model), 1, 1);
        tokens_ = content_of(config["dslaunch"]["data"]["train"].get<std::string>());
        REQUIRE(tokens_.size() > 1000);
        put("tokens.bin", tokens_);
        use("tokens.bin");
    }

    void put(const std::string& name, const std::string& bytes) const {
        write_file(job_.folder.path() + "/" + name, bytes);
    }
    // Makes later runs train on the file NAME, with CHANGE in dslaunch.data.
    void use(const std::string& name, const Json& change = Json::object()) {
        job_.change = [path = job_.folder.path() + "/" + name, change](Json& config) {
            config["dslaunch"]["data"]["train"] = path;
            config["dslaunch"]["data"].merge_patch(change);
        };
    }
    int run(bool resume) {
        JobProcess process(job_.folder, job_.command(resume));
        const int code = process.wait();
        err_ = process.err();
        return code;
    }
    [[nodiscard]] bool says(const std::string& words) const { return mentions(err_, words); }
    [[nodiscard]] const std::string& err() const { return err_; }
    [[nodiscard]] std::string other_tokens() const {
        std::string other = tokens_;
        std::swap(other[0], other[2]);
        std::swap(other[1], other[3]);
        return other == tokens_ ? "the first two tokens are equal" : other;
    }
    [[nodiscard]] const std::string& tokens() const { return tokens_; }
    [[nodiscard]] std::string step_folder(int64_t step) const {
        return job_.output() + "/checkpoints/step-" + std::to_string(step);
    }
    SavingJob& job() { return job_; }

  private:
    SavingJob job_;
    std::string tokens_, err_;
};

}  // namespace

TEST_CASE("a run goes on with a copy of its data, and with others when it is told to") {
    DataJob data;
    REQUIRE(data.run(false) == 0);
    data.put("copy.bin", data.tokens());
    data.put("other.bin", data.other_tokens());
    data.put("longer.bin", data.tokens() + data.tokens());
    data.job().steps = 6;
    struct Case {
        std::string file;
        Json change;
        std::string says;
    };
    const std::vector<Case> cases = {
        {"other.bin", Json::object(), "other.bin. Resume with the data"},
        {"longer.bin", Json::object(), "longer.bin. Resume with the data"},
        {"tokens.bin", {{"eval_fraction", 0.25}}, "0.25 of them held out"},
        {"tokens.bin", {{"shuffle", false}}, "as they lie, but were"},
    };
    for (const Case& one : cases) {
        data.use(one.file, one.change);
        CHECK(data.run(true) == 73);
        INFO(data.err());
        CHECK(data.says("its run used other data than this run would: "));
        CHECK(data.says(one.says));
        CHECK(data.says("add --new-data"));
    }
    const auto reader = [&](int64_t step) {
        const std::unique_ptr<FileTree> tree = make_disk_tree();
        return CheckpointReader(*tree, data.step_folder(step)).checkpoint();
    };
    const int64_t seen = reader(3).training.samples_seen;
    REQUIRE(seen > 0);
    data.use("copy.bin");
    CHECK(data.run(true) == 0);
    INFO(data.err());
    CHECK_FALSE(data.says("other data"));
    CHECK(reader(6).training.samples_seen == 2 * seen);
    CHECK(reader(6).data == reader(3).data);

    data.job().steps = 9;
    data.job().more = {"--new-data"};
    data.use("other.bin");
    CHECK(data.run(true) == 0);
    CHECK(data.says("--new-data: training continues from the first sample of other data"));
    CHECK(reader(9).training.samples_seen == seen);
    // Now these are the run's data, so --new-data is not needed.
    data.job().steps = 12;
    data.job().more = {};
    CHECK(data.run(true) == 0);
    CHECK(reader(12).training.samples_seen == 2 * seen);
    CHECK(data.job().losses().size() == 12);
}

TEST_CASE("held-out data of a run's own stay the same, or are left out") {
    DataJob data;
    data.put("held.bin", data.tokens());
    const auto held = [&](const std::string& name) {
        return Json{{"eval", data.job().folder.path() + "/" + name}};
    };
    data.use("tokens.bin", held("held.bin"));
    REQUIRE(data.run(false) == 0);
    data.job().steps = 4;
    data.put("held.bin", data.other_tokens());
    CHECK(data.run(true) == 73);
    INFO(data.err());
    CHECK(data.says("the fingerprint of the held-out data is"));
    data.use("tokens.bin");
    CHECK(data.run(true) == 0);
}

TEST_CASE("a checkpoint that tells nothing of its data is resumed, and that is said") {
    DataJob data;
    REQUIRE(data.run(false) == 0);
    const std::string path = data.step_folder(3) + "/manifest.json";
    Checkpoint checkpoint = parse_manifest(path, content_of(path));
    CHECK_FALSE(checkpoint.data == DataMark{});
    checkpoint.data = {};
    write_file(path, manifest_text(checkpoint));
    data.job().steps = 4;
    data.put("other.bin", data.other_tokens());
    data.use("other.bin");
    CHECK(data.run(true) == 0);
    INFO(data.err());
    CHECK(data.says("does not record the data that its run used"));
    data.job().more = {"--new-data"};
    CHECK(data.run(false) == 64);
    CHECK(data.says("so it needs --resume"));
}

}  // namespace dslaunch::test
