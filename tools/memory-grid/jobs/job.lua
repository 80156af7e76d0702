local t = {}
for i = 1, 400000 do t[i] = {i, tostring(i)} end
for i = 1, 400000, 3 do t[i] = nil end
collectgarbage()
local s = {}
for i = 1, 200000 do s["k" .. i] = i end
print(#t, s.k77)
