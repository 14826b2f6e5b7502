-- Reads JSON strictly: no key twice, no number that is not whole, nothing after the end. Refuses with error({reason = ...}).

local json = { null = {} }
local ESCAPES = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }
local DEEPEST = 8
local value

function json.refuse(reason)
    error({ reason = reason }, 0)
end

local function skip(text, at)
    return text:match("^[ \t\r\n]*()", at)
end

local function string_at(text, at)
    local from, parts = at + 1, {}
    while true do
        local plain, stop = text:match('^([^"\\%c]*)()', from)
        parts[#parts + 1] = plain
        local sign, escape = text:sub(stop, stop), text:sub(stop + 1, stop + 1)
        if sign == '"' then
            return table.concat(parts), stop + 1
        end
        local code = text:match("^\\u(%x%x%x%x)", stop)
        if code then
            parts[#parts + 1], from = utf8.char(tonumber(code, 16)), stop + 6
        elseif sign == "\\" and ESCAPES[escape] then
            parts[#parts + 1], from = ESCAPES[escape], stop + 2
        else
            json.refuse("the body is not JSON: a string is broken")
        end
    end
end

-- The items between two brackets: `item` reads one and returns where it ends.
local function items_at(text, at, closing, item)
    at = skip(text, at + 1)
    if text:sub(at, at) == closing then
        return at + 1
    end
    while true do
        at = skip(text, item(skip(text, at)))
        local sign = text:sub(at, at)
        if sign == closing then
            return at + 1
        elseif sign ~= "," then
            json.refuse("the body is not JSON: a comma is missing")
        end
        at = at + 1
    end
end

local function object_at(text, at, depth)
    local object = {}
    at = items_at(text, at, "}", function(from)
        if text:sub(from, from) ~= '"' then
            json.refuse("the body is not JSON: a key is missing")
        end
        local key, after = string_at(text, from)
        if object[key] ~= nil then
            json.refuse("the body has a key twice")
        end
        after = skip(text, after)
        if text:sub(after, after) ~= ":" then
            json.refuse("the body is not JSON: a colon is missing")
        end
        object[key], after = value(text, skip(text, after + 1), depth)
        return after
    end)
    return object, at
end

local function array_at(text, at, depth)
    local array = {}
    at = items_at(text, at, "]", function(from)
        local after
        array[#array + 1], after = value(text, from, depth)
        return after
    end)
    return array, at
end

function value(text, at, depth)
    if depth > DEEPEST then
        json.refuse("the body is nested too deeply")
    end
    local sign = text:sub(at, at)
    if sign == '"' then
        return string_at(text, at)
    elseif sign == "{" then
        return object_at(text, at, depth + 1)
    elseif sign == "[" then
        return array_at(text, at, depth + 1)
    end
    local word, after = text:match("^(%-?[%w.+-]+)()", at)
    local words = { ["true"] = true, ["false"] = false, null = json.null }
    if words[word] ~= nil then
        return words[word], after
    elseif word and word:match("^%-?%d+$") then
        return tonumber(word), after
    end
    json.refuse("the body is not JSON: a value is missing")
end

-- The value that a text stands for; objects and arrays as tables, null as json.null.
function json.read(text)
    local read, at = value(text, skip(text, 1), 0)
    if skip(text, at) ~= #text + 1 then
        json.refuse("the body goes on after its end")
    end
    return read
end

return json
