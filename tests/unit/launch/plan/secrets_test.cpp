#include "launch/plan/secrets.h"

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

TEST_CASE("names of secrets are known, and words that only look like them are not") {
    for (const char* name : {"HF_TOKEN", "WANDB_API_KEY", "aws_secret_access_key", "PGPASSWORD",
                             "MYSQL_PASS", "GOOGLE_APPLICATION_CREDENTIALS", "--auth", "sshKey",
                             "MLFLOW_TRACKING_PASSWORD", "DSLAUNCH_TOKEN", "SENTRY_DSN",
                             "SLACK_WEBHOOK_URL", "--session-id", "session", "COOKIE", "SAS_SIG"}) {
        INFO(name);
        CHECK(is_secret_name(name));
    }
    for (const char* name : {"PATH", "TOKENIZERS_PARALLELISM", "tokens_per_s", "KeyError", "RANK",
                             "AUTHOR", "max_tokens", "HOME", "", "XDG_SESSION_ID", "WORDSNUM",
                             "DBUS_SESSION_BUS_ADDRESS", "sigma", "sessions_per_day"}) {
        INFO(name);
        CHECK_FALSE(is_secret_name(name));
    }
}

TEST_CASE("a canary is hidden in every form in which secrets are written, and the rest stays") {
    const std::string canary = "c4nary-9876543210abcdef";
    const std::vector<std::pair<std::string, std::string>> rows = {
        {"HF_TOKEN=" + canary + " python x.py", "HF_TOKEN=(hidden) python x.py"},
        {"export API_KEY='" + canary + " with blanks'; ls", "export API_KEY=(hidden); ls"},
        {"\"wandb_api_key\": \"" + canary + "\\\" more\", \"lr\": 1",
         "\"wandb_api_key\": (hidden), \"lr\": 1"},
        {"password: " + canary, "password: (hidden)"},
        {"run --api-key " + canary + " --lr 1", "run --api-key (hidden) --lr 1"},
        {"run --api-key=" + canary, "run --api-key=(hidden)"},
        {"https://me:" + canary + "@host/path", "https://me:(hidden)@host/path"},
        {"s3://" + canary + "/b", "s3://" + canary + "/b"},  // no password: a bucket's name
        {"https://hooks.slack.com/services/T0/B0/" + canary + " failed",
         "https://hooks.slack.com/(hidden) failed"},
        {"POST https://discord.com/api/webhooks/11/" + canary + "\"",
         "POST https://discord.com/api/webhooks/(hidden)\""},
        {"https://0123456789abcdef0123456789abcdef@o1.ingest.example.io/2",
         "https://(hidden)@o1.ingest.example.io/2"},
        {"https://me@host/path", "https://me@host/path"},
        {"https://b.example.net/x?se=2027&sig=" + canary + "&sp=r",
         "https://b.example.net/x?se=2027&sig=(hidden)&sp=r"},
        {"got hf_abcdefghijklmnopqrstu today", "got (hidden) today"},
        {"id AKIAIOSFODNN7EXAMPLE.", "id (hidden)"},
        {"Authorization: Bearer " + canary, "Authorization: (hidden)"},
        {"curl says Bearer " + canary, "curl says Bearer (hidden)"},
        {"a\n-----BEGIN OPENSSH PRIVATE KEY-----\n" + canary + "\n-----END X-----\nb",
         "a\n(hidden) private key\nb"},
        {"KeyError: 'layer.0'", "KeyError: 'layer.0'"},
        {"tokens_per_s: 12", "tokens_per_s: 12"},
        {"", ""},
        {"a\n\nb\n", "a\n\nb\n"},
    };
    for (const auto& [text, hidden] : rows) {
        INFO(text);
        CHECK(hide_secrets(text) == hidden);
    }
}

TEST_CASE("the word behind an option that tells a secret is hidden, in a command of words") {
    const std::vector<std::string> words = {
        "train.py",       "--api-key", "c4nary one",      "--lr",      "1e-3",
        "--token=c4nary", "-x",        "HF_TOKEN=c4nary", "--password"};
    CHECK(hide_in_command(words) ==
          std::vector<std::string>{"train.py", "--api-key", "(hidden)", "--lr", "1e-3",
                                   "--token=(hidden)", "-x", "HF_TOKEN=(hidden)", "--password"});
}

TEST_CASE(
    "values of dslaunch's, forwarded and everybody's variables stand in files, others do not") {
    for (const char* name : {"RANK", "DSL_JOB_ID", "NCCL_DEBUG", "OMP_NUM_THREADS", "PATH",
                             "LC_ALL", "CUDA_VISIBLE_DEVICES", "PYTHONPATH"}) {
        INFO(name);
        CHECK(is_shown_in_files(name));
    }
    for (const char* name : {"MY_DB", "BUCKET", "ALERT_TO", "path", "XPATH", ""}) {
        INFO(name);
        CHECK_FALSE(is_shown_in_files(name));
    }
}

TEST_CASE("a line without end is cut, not matched for minutes") {
    const std::string text = hide_secrets("x=" + std::string(1U << 20, 'a') + "\nnext");
    CHECK(text.size() < 5'000);
    CHECK_THAT(text, Catch::EndsWith(" (cut)\nnext"));
}
