#include "server/api_request.h"

#include <nlohmann/json.hpp>

#include "server/api_reply.h"
#include "support/catch.h"
#include "unit/server/heap_watch.h"

namespace dslaunch::server {
namespace {

std::variant<ApiRequest, ApiError> parsed_from(ApiKind kind, const std::string& body,
                                               int64_t bytes_max = 1 << 20) {
    RequestBudget account(bytes_max);
    MemoryLease lease(account);
    return parse_api_request(kind, body, {.temperature = 0.5, .top_k = 7}, lease);
}

ApiRequest accepted(ApiKind kind, const std::string& body) {
    const auto parsed = parsed_from(kind, body);
    INFO(body);
    if (const auto* error = std::get_if<ApiError>(&parsed)) FAIL(error->message);
    return std::get<ApiRequest>(parsed);
}

ApiError refused(ApiKind kind, const std::string& body) {
    const auto parsed = parsed_from(kind, body);
    INFO(body);
    REQUIRE(std::holds_alternative<ApiError>(parsed));
    return std::get<ApiError>(parsed);
}

TEST_CASE("a completion is read with its defaults") {
    const ApiRequest plain = accepted(ApiKind::kCompletion, R"({"prompt": "a"})");
    CHECK(plain.prompts == std::vector<std::string>{"a"});
    CHECK_FALSE(plain.tokens_max);
    CHECK(plain.sampling.temperature == 0.5);
    CHECK(plain.sampling.top_k == 7);
    CHECK_FALSE(plain.stream);
    const ApiRequest full = accepted(ApiKind::kCompletion, R"({"model": "m", "prompt": ["a", "b"],
        "max_tokens": 5, "temperature": 0, "top_p": 0.25, "top_k": -1, "min_p": 0.125, "seed": 9,
        "n": 3, "stop": ["x", "yy"], "stream": true, "stream_options": {"include_usage": true},
        "echo": true, "repetition_penalty": 1.5, "logprobs": null, "best_of": 1, "user": "u",
        "presence_penalty": 0.0, "logit_bias": {}})");
    CHECK(full.prompts.size() == 2);
    CHECK(full.tokens_max == 5);
    CHECK(full.sampling.temperature == 0);
    CHECK(full.sampling.top_p == 0.25);
    CHECK(full.sampling.top_k == 0);
    CHECK(full.sampling.min_p == 0.125);
    CHECK(full.sampling.repetition_penalty == 1.5);
    CHECK(full.sampling.seed == 9);
    CHECK(full.choices == 3);
    CHECK(full.stops == std::optional(std::vector<std::string>{"x", "yy"}));
    CHECK(full.stream);
    CHECK(full.stream_usage);
    CHECK(full.echo);
    CHECK(accepted(ApiKind::kCompletion, R"({"prompt": [1, 2]})").prompt_tokens.size() == 1);
    CHECK(accepted(ApiKind::kCompletion, R"({"prompt": [[1], [2, 3]]})").prompt_tokens.size() == 2);
}

TEST_CASE("a chat is read, with parts of text and tools") {
    const ApiRequest chat = accepted(ApiKind::kChat, R"({"messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text",
        "text": "hi"}]}, {"role": "assistant", "content": null, "tool_calls": []}],
        "max_tokens": 4, "max_completion_tokens": 6, "tools": [{"type": "function"}],
        "response_format": {"type": "text"}, "tool_choice": "auto", "stop": "x"})");
    CHECK(chat.messages->elements() == 3);
    CHECK(chat.tools->elements() == 1);
    CHECK(chat.tokens_max == 6);
    CHECK(chat.stops == std::optional(std::vector<std::string>{"x"}));
    CHECK_FALSE(
        accepted(ApiKind::kChat, R"({"messages": [{"role": "user", "content": "x"}]})").tokens_max);
}

TEST_CASE("what clients send by default or beside the protocol's fields is taken") {
    // Bodies that openai-python, LangChain, LiteLLM, Open WebUI, the Vercel AI SDK and vLLM's users
    // send. Clients send back the whole message of an earlier answer.
    const ApiRequest chat = accepted(ApiKind::kChat, R"({"model": "m", "messages": [
        {"role": "developer", "content": [{"type": "text", "text": "s"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}], "name": "u"},
        {"role": "assistant", "content": null, "refusal": null, "annotations": [], "audio": null,
         "function_call": null, "tool_calls": [{"id": "c", "type": "function", "index": 0,
         "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "7"}],
        "frequency_penalty": 0.5, "presence_penalty": -0.5, "logit_bias": {"5": -100},
        "logprobs": false, "top_logprobs": 0, "n": 1, "stream": false, "stream_options": null,
        "user": "u", "metadata": {"a": "b"}, "store": false, "service_tier": "auto",
        "parallel_tool_calls": true, "modalities": ["text"], "response_format": {"type": "text"},
        "tool_choice": "none", "tools": [{"type": "function"}], "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": false}, "skip_special_tokens": true,
        "min_tokens": 3, "ignore_eos": true, "stop_token_ids": [7], "stop": [], "best_of": null,
        "guided_json": null, "functions": []})");
    CHECK_FALSE(chat.tools);
    CHECK(chat.reasoning_effort == "low");
    CHECK(chat.template_kwargs->elements() == 1);
    CHECK(chat.begins_answer);
    CHECK(chat.sampling.frequency_penalty == 0.5);
    CHECK(chat.sampling.presence_penalty == -0.5);
    CHECK(chat.sampling.tokens_min == 3);
    REQUIRE(chat.sampling.rules);
    REQUIRE(chat.sampling.rules->biases.size() == 1);
    CHECK(chat.sampling.rules->biases[0].tokens == std::vector<int32_t>{5});
    CHECK(chat.sampling.rules->biases[0].bias == -100);
    CHECK(chat.ignores_end);
    CHECK(chat.more_ends == std::vector<int32_t>{7});
    REQUIRE(chat.stops);
    CHECK(chat.stops->empty());
    const ApiRequest goes_on = accepted(ApiKind::kChat, R"({"messages": [
        {"role": "assistant", "content": "a"}], "continue_final_message": true})");
    CHECK(goes_on.continues_last);
    CHECK_FALSE(goes_on.begins_answer);
}

TEST_CASE("wrong requests are refused by their field") {
    struct Row {
        ApiKind kind;
        std::string body, field, word;
    };
    const auto chat = ApiKind::kChat;
    const auto text = ApiKind::kCompletion;
    const Row rows[] = {
        {text, "", "", "JSON"},
        {text, "{", "", "JSON"},
        {text, "[]", "", "object"},
        {text, "\"\xff\"", "", "JSON"},
        {text, std::string(100, '[') + std::string(100, ']'), "", "deeper"},
        {text, "{}", "prompt", "missing"},
        {text, R"({"prompt": 5})", "prompt", "string"},
        {text, R"({"prompt": []})", "prompt", "string"},
        {text, R"({"prompt": ["a", 1]})", "prompt", "string"},
        {text, R"({"prompt": [1, -1]})", "prompt", "token"},
        {text, R"({"prompt": [1, 1e99]})", "prompt", "token"},
        {text, R"({"prompt": [1, 2], "echo": true})", "echo", "token ids"},
        {text, R"({"prompt": "a", "max_tokens": 0})", "max_tokens", "between"},
        {text, R"({"prompt": "a", "max_tokens": 1.5})", "max_tokens", "integer"},
        {text, R"({"prompt": "a", "max_tokens": "5"})", "max_tokens", "integer"},
        {text, R"({"prompt": "a", "temperature": -1})", "temperature", "between"},
        {text, R"({"prompt": "a", "temperature": "hot"})", "temperature", "number"},
        {text, R"({"prompt": "a", "top_p": -0.5})", "top_p", "between"},
        {text, R"({"prompt": "a", "seed": 1e19})", "seed", "between"},
        {text, R"({"prompt": "a", "n": 1000})", "n", "between"},
        {text, R"({"prompt": "a", "stream": 1})", "stream", "true or false"},
        {text, R"({"prompt": "a", "stop": [""]})", "stop", "bytes"},
        {text, R"({"prompt": "a", "stop": [1]})", "stop", "string"},
        {text, R"({"prompt": "a", "logprobs": 5})", "logprobs", "not supported"},
        {text, R"({"prompt": "a", "frequency_penalty": 3})", "frequency_penalty", "between"},
        {text, R"({"prompt": "a", "logit_bias": {"x": 1}})", "logit_bias", "not a token id"},
        {text, R"({"prompt": "a", "logit_bias": {"5": 101}})", "logit_bias", "between"},
        {text, R"({"prompt": "a", "stop_token_ids": [-1]})", "stop_token_ids", "token"},
        {text, R"({"prompt": "a", "temprature": 1})", "temprature", "`temperature`"},
        {text, R"({"prompt": "a", "temprature": null})", "temprature", "`temperature`"},
        {text, R"({"prompt": "a", "user": 5})", "user", "a string"},
        {text, R"({"prompt": "a", "messages": []})", "messages", "field of a chat"},
        {text, R"({"prompt": "a", "max_new_tokens": 5})", "max_new_tokens", "send max_tokens"},
        {text, R"({"prompt": "a", "stream_options": {"usage": true}})", "stream_options", "usage"},
        {chat, "{}", "messages", "missing"},
        {chat, R"({"messages": [{"role": "u", "content": "a"}], "enable_thinking": false})",
         "enable_thinking", "chat_template_kwargs"},
        {chat, R"({"messages": [{"role": "u", "content": "a"}], "chat_template_kwargs": [1]})",
         "chat_template_kwargs", "object"},
        {chat,
         R"({"messages": [{"role": "u", "content": "a"}], "chat_template_kwargs": {"tools": []}})",
         "chat_template_kwargs", "`tools`"},
        {chat, R"({"messages": [{"role": "u", "content": "a"}], "tool_choice": "required"})",
         "tool_choice", "not supported"},
        {chat, R"({"messages": [{"role": "u", "content": "a"}], "functions": [{"name": "f"}]})",
         "functions", "send tools"},
        {chat, R"({"messages": [{"role": "u", "content": "a"}], "continue_final_message": true,
                   "add_generation_prompt": true})",
         "continue_final_message", "one of them"},
        {chat, R"({"messages": [{"role": "u", "tool_calls": [{"name": "f"}]}]})", "messages",
         "tool call"},
        {chat, R"({"messages": [{"role": "u", "content": "a", "function_call": {"name": "f"}}]})",
         "messages", "function_call"},
        {chat, R"({"messages": []})", "messages", "at least one"},
        {chat, R"({"messages": ["a"]})", "messages", "objects"},
        {chat, R"({"messages": [{"content": "a"}]})", "messages", "role"},
        {chat, R"({"messages": [{"role": "user"}]})", "messages", "content"},
        {chat, R"({"messages": [{"role": "user", "content": 5}]})", "messages", "content"},
        {chat, R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
         "messages", "only text"},
        {chat,
         R"({"messages": [{"role": "u", "content": "a"}],
            "response_format": {"type": "json_object"}})",
         "response_format",
         "not supported by this server; remove it, and ask for JSON in a message"},
    };
    for (const Row& row : rows) {
        const ApiError error = refused(row.kind, row.body);
        INFO(row.body << " -> " << error.message);
        CHECK(error.status == 400);
        CHECK(error.parameter == row.field);
        CHECK(error.message.find(row.word) != std::string::npos);
        const auto json = nlohmann::json::parse(error_json(error));
        CHECK(json["error"]["type"] == "invalid_request_error");
    }
}

TEST_CASE("a request whose parts find no memory left is refused for now, not for ever") {
    std::string tokens = "1";
    for (int i = 0; i < 5000; ++i) tokens += ",1";
    const std::string bodies[] = {R"({"prompt": "a", "metadata": {"x": [)" + tokens + "]}}",
                                  R"({"prompt": [)" + tokens + "]}",
                                  R"({"prompt": ")" + std::string(50'000, 'a') + "\"}"};
    for (const std::string& body : bodies) {
        REQUIRE(std::holds_alternative<ApiRequest>(parsed_from(ApiKind::kCompletion, body)));
        const auto refusal = parsed_from(ApiKind::kCompletion, body, 40'000);
        REQUIRE(std::holds_alternative<ApiError>(refusal));
        CHECK(std::get<ApiError>(refusal).status == 503);
    }
}

TEST_CASE("replies are the JSON of the protocol") {
    const ReplyHead head{ApiKind::kChat, "chatcmpl-1", "m", 5};
    const auto whole =
        nlohmann::json::parse(whole_reply(head, {{0, "a\"b", TextEnd::kStop}}, {3, 2}));
    CHECK(whole["object"] == "chat.completion");
    CHECK(whole["choices"][0]["message"]["content"] == "a\"b");
    CHECK(whole["choices"][0]["finish_reason"] == "stop");
    CHECK(whole["usage"]["total_tokens"] == 5);
    const std::string event = stream_event(head, {1, "x", TextEnd::kNone}, {true, false});
    REQUIRE(event.starts_with("data: "));
    REQUIRE(event.ends_with("\n\n"));
    const auto chunk = nlohmann::json::parse(event.substr(6));
    CHECK(chunk["object"] == "chat.completion.chunk");
    CHECK(chunk["choices"][0]["index"] == 1);
    CHECK(chunk["choices"][0]["delta"]["role"] == "assistant");
    CHECK(chunk["choices"][0]["finish_reason"].is_null());
    CHECK_FALSE(chunk.contains("usage"));
    const ReplyHead text{ApiKind::kCompletion, "cmpl-1", "m", 5};
    const auto completion =
        nlohmann::json::parse(whole_reply(text, {{0, "t", TextEnd::kLength}}, {3, 2}));
    CHECK(completion["object"] == "text_completion");
    CHECK(completion["choices"][0]["text"] == "t");
    CHECK(completion["choices"][0]["finish_reason"] == "length");
}

TEST_CASE("the name of a field that nobody knows may be long, and takes little memory") {
    const std::string name(200'000, 'x');
    const std::string body = R"({"prompt": "a", ")" + name + R"(": 1})";
    test::watch_peak();
    CHECK(refused(ApiKind::kCompletion, body).parameter == name.substr(0, 80));
    CHECK(test::peak_bytes() < 16 * std::ssize(name));
}

}  // namespace
}  // namespace dslaunch::server
