// dsworker serve: a model that answers OpenAI's protocol, on one rank or shared by a job's ranks.
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/machine/memory_limits.h"
#include "base/text.h"
#include "decoder/sample/sampler.h"
#include "server/http_server.h"
#include "server/text_service.h"
#include "storage/huggingface/named_place.h"
#include "worker/rank_process.h"
#include "worker/roles.h"
#include "worker/text/decoder_session.h"
#include "worker/text/generation_defaults.h"
#include "worker/text/prompts.h"
#include "worker/text/text_files.h"

namespace dslaunch::worker {
namespace {

struct ServeArguments {
    DecoderArguments decoder;
    server::ServerOptions server;
    decoder::EngineOptions engine;
    SamplingArguments sampling;
    std::string template_kwargs;
    int64_t cache_tokens = 0;
    int64_t port = 8000;
    std::string api_key_file;
    double grace_s = 30;
};

void declare(CommandLine& app, ServeArguments& arguments) {
    app.add("MODEL", arguments.decoder.model, "a Hugging Face folder").required();
    app.add("--host ADDRESS", arguments.server.host,
            "where to listen; one that other machines reach wants --api-key-file")
        .show_default();
    app.add("--port N", arguments.port, "0: one that is free")
        .show_default()
        .range(int64_t{0}, int64_t{65'535});
    app.add("--api-key-file FILE", arguments.api_key_file,
            "clients must send the first line of FILE, which nobody else may read (mode 600), as "
            "their API key");
    app.add("--grace SECONDS", arguments.grace_s,
            "how long texts may go on after Ctrl-C or SIGTERM; a second one ends them at once")
        .show_default()
        .range(0.0, 86'400.0);
    app.add("--name NAME", arguments.server.model, "of the model; default: its folder's");
    app.add("--sequences N", arguments.engine.sequences_max, "texts that share each step")
        .show_default()
        .range(int64_t{1}, int64_t{512});
    app.add("--queue N", arguments.engine.queue_max, "texts that wait; more are refused (429)")
        .show_default()
        .range(int64_t{0}, int64_t{1'000'000});
    app.add("--cache-tokens N", arguments.cache_tokens,
            "positions in the cache of keys and values, all texts together; 0: two contexts, at "
            "least 16384, or what memory holds")
        .show_default()
        .range(int64_t{0}, kPositionsMax);
    app.add("--context N", arguments.decoder.context, "tokens of a text, 0: the model's own limit")
        .show_default()
        .at_least(0);
    declare_decoder(app, arguments.decoder);
    declare_cpu(app, arguments.decoder);
    app.group("where a request is silent");
    declare_sampling(app, arguments.sampling);
    app.add("--chat-template-kwargs JSON", arguments.template_kwargs,
            "variables of the chat template, as '{\"enable_thinking\": false}'");
}

constexpr size_t kFileBytesMax = 4096;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

// Returns the first line of PATH, the key that clients must send. Throws Error{kInput} when others
// than its owner may read it, when it cannot be read, or has no key that a client could send.
std::string read_key_file(const std::string& path) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat facts {};
    if (!file.valid() || ::fstat(file.get(), &facts) != 0)
        fail(ExitCode::kInput, "--api-key-file {}: {}", printable(path), errno_text(errno));
    if (S_ISREG(facts.st_mode) && (facts.st_mode & kOthers) != 0)
        fail(ExitCode::kInput,
             "--api-key-file {}: its mode is {:o}, so that others of this machine may know the "
             "key: `chmod 600` it, and take a new key",
             printable(path), facts.st_mode & 07777);
    std::string text(kFileBytesMax, '\0');
    const ssize_t bytes = read_full(file.get(), std::as_writable_bytes(std::span(text)));
    if (bytes < 0)
        fail(ExitCode::kInput, "--api-key-file {}: {}", printable(path),
             errno_text(static_cast<int>(-bytes)));
    text.resize(static_cast<size_t>(bytes));
    const std::string key(trim(text.substr(0, text.find('\n'))));
    if (key.empty())
        fail(ExitCode::kInput, "--api-key-file {}: its first line is empty", printable(path));
    if (!std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7f; }))
        fail(ExitCode::kInput,
             "--api-key-file {}: its first line has blanks or characters that are not ASCII, which "
             "no client sends in a header; take letters, digits and marks",
             printable(path));
    if (key.size() == text.size() && text.size() == kFileBytesMax)
        fail(ExitCode::kInput, "--api-key-file {}: its first line is longer than {} bytes",
             printable(path), kFileBytesMax - 1);
    return key;
}

// The end of a server: signals, the launcher's wish and the service's failure, whatever the process
// does meanwhile. Threads: one of its own waits for signals.
class EndWatch {
  public:
    // From here on SIGINT and SIGTERM wait for an EndWatch. Before the first thread starts.
    static void block_signals();

    // Until serve() a signal ends the process: nobody is served yet, and weights may take minutes.
    // PROCESS must outlive this.
    explicit EndWatch(const RankProcess& process);
    EndWatch(const EndWatch&) = delete;
    EndWatch& operator=(const EndWatch&) = delete;
    ~EndWatch();

    // Serves until a signal, the launcher or a failure of SERVICE asks to end. Texts that were
    // begun may then go on for GRACE, or until another signal comes. Whatever has not ended half a
    // second later is not waited for: the process exits with 0, unless a launcher ends it. Throws
    // Error{kSetup} when the server can take no connections any more.
    void serve(server::HttpServer& server, server::TextService& service, Duration grace);

  private:
    enum class Phase {
        kLoading,
        kServing,
        kGrace,   // it was asked to end, and texts go on
        kEnding,  // waits only for the end of work that cannot be broken off
    };
    void watch();
    void look(int signal);
    void begin_grace();
    void begin_end();
    [[nodiscard]] bool leave_server();

    const RankProcess& process_;
    std::mutex mutex_;  // guards what follows
    Phase phase_ = Phase::kLoading;
    server::HttpServer* server_ = nullptr;
    server::TextService* service_ = nullptr;
    Duration grace_{};
    TimePoint limit_{};  // of the phase
    bool over_ = false;
    std::thread thread_;  // started last
};

// Ends at once: a step of a large model cannot be broken off, and is not waited for.
constexpr std::chrono::milliseconds kEndMax{500};

sigset_t end_signals() {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    return ends;
}

// Waits a moment for a signal. At most 0: none came.
int next_signal() {
    const sigset_t ends = end_signals();
    constexpr timespec kInterval{0, 50'000'000};
    return ::sigtimedwait(&ends, nullptr, &kInterval);
}

void EndWatch::block_signals() {
    const sigset_t ends = end_signals();
    ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
}

EndWatch::EndWatch(const RankProcess& process) : process_(process), thread_([this] { watch(); }) {}

EndWatch::~EndWatch() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    thread_.join();
}

void EndWatch::watch() {
    for (;;) {
        const int signal = next_signal();
        const std::lock_guard lock(mutex_);
        if (over_) return;
        try {
            look(signal);
        } catch (const std::exception&) {
            // A line of the log found no memory.
        }
    }
}

// Decides by SIGNAL, if there is one, and the clock.
void EndWatch::look(int signal) {
    const bool is_late = SystemClock().now() >= limit_;
    switch (phase_) {
        case Phase::kLoading:
            if (signal > 0) std::_Exit(128 + signal);
            break;
        case Phase::kServing:
            if (signal > 0 || process_.asked_to_end() || !service_->failure().empty())
                begin_grace();
            break;
        case Phase::kGrace:
            if (signal > 0 || is_late) begin_end();
            break;
        case Phase::kEnding:
            // In a job the launcher ends what does not end, with the other ranks.
            if (!process_.reporter && (signal > 0 || is_late)) std::_Exit(0);
            break;
    }
}

void EndWatch::begin_grace() {
    server_->stop();
    phase_ = Phase::kGrace;
    limit_ = SystemClock().now() + grace_;
    if (!service_->failure().empty()) return;
    const decoder::EngineCounts counts = service_->counts().engine;
    log_info("serve", "asked to end: waiting up to {:.0f} s for {}",
             std::chrono::duration<double>(grace_).count(),
             counted(counts.running + counts.waiting, "running text"));
}

void EndWatch::begin_end() {
    phase_ = Phase::kEnding;
    // A failure's code is what the process ends with.
    limit_ = service_ != nullptr && !service_->failure().empty() ? TimePoint::max()
                                                                 : SystemClock().now() + kEndMax;
    if (service_ != nullptr) service_->end();
}

void EndWatch::serve(server::HttpServer& server, server::TextService& service, Duration grace) {
    {
        const std::lock_guard lock(mutex_);
        phase_ = Phase::kServing;
        server_ = &server;
        service_ = &service;
        grace_ = grace;
    }
    try {
        server.run();
    } catch (...) {
        service.end();
        static_cast<void>(leave_server());
        throw;
    }
    service.end();
    if (!leave_server())
        fail(ExitCode::kSetup,
             "the server's socket has failed: no connection can be taken any more "
             "(`ulimit -n` and the machine's memory are its limits)");
}

// Returns true if it was asked to end. Server and service may be gone from here on.
bool EndWatch::leave_server() {
    const std::lock_guard lock(mutex_);
    const bool was_asked = phase_ != Phase::kServing;
    server_ = nullptr;
    service_ = nullptr;
    if (phase_ != Phase::kEnding) {
        phase_ = Phase::kGrace;
        limit_ = TimePoint::max();
    }
    return was_asked;
}

// Opens SESSION with the cache that is asked for, or with the default if it fits, or what does.
void open_session(DecoderSession& session, const ServeArguments& arguments) {
    constexpr int64_t kPositionsMin = 16'384, kPositionsLeast = 1024;
    const int64_t context = session.context();
    if (arguments.cache_tokens > 0) return session.open(decoder::pages_for(arguments.cache_tokens));
    session.open(decoder::pages_for(std::max(2 * context, kPositionsMin)),
                 decoder::pages_for(std::min(context, kPositionsLeast)));
}

// Returns an interval within which other ranks, which wait TIMEOUT seconds, do not give up.
Duration idle_interval(double timeout_s) {
    return std::chrono::milliseconds(static_cast<int64_t>(std::min(5.0, timeout_s / 3) * 1e3));
}

using server::JsonKind;
using server::JsonView;
using text::jinja::Value;

Value template_value(JsonView value);

Value large_integer(std::string_view digits) {
    try {
        return text::jinja::new_integer(nullptr, digits);
    } catch (const text::jinja::Fault& fault) {
        fail(ExitCode::kInput, "a value for a template: {}", fault.what());
    }
}

Value list_of(JsonView array) {
    text::jinja::Values items;
    items.reserve(static_cast<size_t>(array.elements()));
    for (const JsonView item : array.items()) items.push_back(template_value(item));
    return text::jinja::new_list(nullptr, std::move(items));
}

Value dict_of(JsonView object) {
    std::vector<text::jinja::Entry> entries;
    entries.reserve(static_cast<size_t>(object.elements()));
    object.for_each_field([&](std::string_view key, JsonView value) {
        entries.emplace_back(text::jinja::new_text(nullptr, std::string(key)),
                             template_value(value));
    });
    return text::jinja::new_dict(nullptr, std::move(entries));
}

// Returns VALUE as a template's value, which needs no document any more. A document is no deeper
// than its reader allows. Throws Error{kInput} for a whole number of thousands of digits.
Value template_value(JsonView value) {
    switch (value.kind()) {
        case JsonKind::kNull:
            return Value::none();
        case JsonKind::kBool:
            return Value::boolean(value.flag());
        case JsonKind::kInteger:
            return Value::integer(value.integer());
        case JsonKind::kReal:
            return value.is_large_integer() ? large_integer(value.digits())
                                            : Value::real(value.real());
        case JsonKind::kText:
            return text::jinja::new_text(nullptr, std::string(value.text()));
        case JsonKind::kArray:
            return list_of(value);
        case JsonKind::kObject:
            return dict_of(value);
    }
    return Value::none();
}

// Returns the variables that CHAT gives the template, and each of MORE whose name CHAT does not
// set.
text::ChatInput chat_input_of(const server::ApiRequest& chat, const text::TemplateVariables& more) {
    const auto value_or_none = [](const std::optional<JsonView>& value) {
        return value ? template_value(*value) : Value::none();
    };
    text::ChatInput input;
    input.messages = template_value(*chat.messages);
    input.tools = value_or_none(chat.tools);
    input.documents = value_or_none(chat.documents);
    input.add_generation_prompt = chat.begins_answer;
    input.continue_final_message = chat.continues_last;
    const Value kwargs = value_or_none(chat.template_kwargs);
    if (chat.template_kwargs)
        for (const auto& [name, value] : kwargs.dict().entries)
            input.more.emplace_back(name.text(), value);
    if (!chat.reasoning_effort.empty())
        input.more.emplace_back("reasoning_effort",
                                text::jinja::new_text(nullptr, chat.reasoning_effort));
    // The template takes the first of two variables of one name.
    input.more.insert(input.more.end(), more.begin(), more.end());
    return input;
}

server::ChatRenderer renderer_of(const TextFiles& files, const ServeArguments& arguments) {
    if (!files.has_chat()) return {};
    const text::TemplateVariables more =
        template_variables_of(arguments.template_kwargs, "--chat-template-kwargs");
    return [&files, more](const server::ApiRequest& chat, int64_t bytes_max) {
        text::jinja::Limits limits;
        limits.memory_bytes_max = std::min(limits.memory_bytes_max, static_cast<size_t>(bytes_max));
        return files.chat_text(chat_input_of(chat, more), limits);
    };
}

// Returns a part of what the system leaves, for all requests together.
int64_t requests_bytes_max(int64_t otherwise) {
    constexpr int64_t kPart = 4, kLeast = int64_t{4} << 20;
    const auto tightest = tightest_share(read_memory_state().limits, 1);
    if (!tightest) return otherwise;
    return std::clamp(tightest->left.value / kPart, kLeast, otherwise);
}

server::ServerOptions server_options(const ServeArguments& arguments, const TextFiles& files,
                                     int64_t context) {
    server::ServerOptions options = arguments.server;
    const storage::GenerationConfig& config = files.generation();
    options.sampling = sampling_of(arguments.sampling, config);
    options.tokens_max = config.max_new_tokens;
    options.length_max = config.max_length;
    options.stops = config.stop_strings;
    options.first_token = files.first_token();
    tell_generation("serve", arguments.sampling, config);
    if (!files.end_source().empty()) log_info("serve", "a text ends at {}", files.end_source());
    options.port = static_cast<int>(arguments.port);
    options.context = context;
    options.requests_bytes_max = requests_bytes_max(options.requests_bytes_max);
    if (options.model.empty())
        options.model =
            std::filesystem::path(arguments.decoder.model + "/").parent_path().filename();
    return options;
}

// Serves until a signal, the launcher or a failure asks to end.
void serve_session(const ServeArguments& arguments, const server::ServerOptions& options,
                   DecoderSession& session, const TextFiles& files, EndWatch& watch) {
    decoder::EngineOptions engine = arguments.engine;
    engine.sequences_max = std::min(engine.sequences_max, session.runner().rows_max());
    server::TextService service(
        session.runner(), files.require_codec(), engine, files.end_tokens(),
        [&](bool goes_on) {
            if (goes_on) session.keep_waiting();
        },
        idle_interval(arguments.decoder.timeout_s));
    server::HttpServer server(service, files.require_codec(), renderer_of(files, arguments),
                              options);
    const int port = server.bind();
    const bool is_v6 = options.host.find(':') != std::string::npos;
    log_info("serve", "`{}` at http://{}:{}/v1, {} texts at once, {} tokens of cache; Ctrl-C stops",
             printable(options.model), is_v6 ? "[" + options.host + "]" : options.host, port,
             engine.sequences_max, session.pages() * decoder::kPagePositions);
    watch.serve(server, service,
                std::chrono::milliseconds(static_cast<int64_t>(arguments.grace_s * 1e3)));
    if (const std::exception_ptr error = service.error()) std::rethrow_exception(error);
}

// Refuses a --host that holds the port too: addresses of IPv6 have several colons.
void require_host(const std::string& host) {
    const std::vector<std::string> parts = split(host, ':');
    if (parts.size() == 2 && parse_int(parts.back()))
        fail(ExitCode::kUsage, "--host {}: the port has an option of its own: --host {} --port {}",
             printable(host), printable(parts.front()), parts.back());
}

void serve_model(ServeArguments& arguments, RankProcess& process) {
    EndWatch::block_signals();
    if (!process.is_first()) {
        DecoderSession session(arguments.decoder, process);
        open_session(session, arguments);
        return session.finish();
    }
    EndWatch watch(process);
    require_host(arguments.server.host);
    if (!arguments.api_key_file.empty())
        arguments.server.api_key = read_key_file(arguments.api_key_file);
    server::HttpServer::require_key(arguments.server);
    DecoderSession session(arguments.decoder, process);
    const TextFiles files(session.text_folder(), session.folder().config.vocabulary);
    static_cast<void>(files.require_codec(kTokenizerWanted));
    open_session(session, arguments);
    const int64_t positions = session.pages() * decoder::kPagePositions;
    if (positions < session.context())
        log_info("serve",
                 "a text may have {} tokens, as many as the cache: the model's context is {}",
                 positions, session.context());
    serve_session(arguments,
                  server_options(arguments, files, std::min(session.context(), positions)), session,
                  files, watch);
    session.finish();
}

}  // namespace

int serve_main(int argc, char** argv) {
    CommandLine app(
        {.does = "Serves a language model over HTTP, as OpenAI's completions and chat protocol. "
                 "With options of hosts and ranks (dslaunch run --help), as --hostfile, MODEL "
                 "comes first and the ranks share it.",
         .examples = {"dslaunch serve SmolLM2-135M-Instruct --port 8000",
                      "dslaunch serve Qwen2.5-7B --hostfile hostfile --weights int8"},
         .docs = "docs/guide/generate.md"},
        "dslaunch serve");
    ServeArguments arguments;
    declare(app, arguments);
    if (!app.parse({argv + 1, argv + argc})) return 0;
    static_cast<void>(sampling_of(arguments.sampling, {}));  // says what is out of range
    static_cast<void>(template_variables_of(arguments.template_kwargs, "--chat-template-kwargs"));
    arguments.decoder.model = storage::folder_model_at(arguments.decoder.model, "serve");
    arguments.decoder.adapter = storage::adapter_at(arguments.decoder.adapter);
    return run_as_rank([&](RankProcess& process) { serve_model(arguments, process); });
}

}  // namespace dslaunch::worker
