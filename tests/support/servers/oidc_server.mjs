// A real authorization server (oidc-provider), and an MCP server that takes its tokens, on loopback.
// node oidc_server.mjs SECONDS: how long a token lasts. Prints the address of the MCP server; each
// line that follows is a token that was given out.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

const require = createRequire(new URL('../node/', import.meta.url));
const { Provider } = await import(require.resolve('oidc-provider'));
const lasts = Number(process.argv[2]);

const listening = async (handle) => {
  const server = createServer((request, response) => handle(request, response));
  await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
  return `http://127.0.0.1:${server.address().port}`;
};

let answer, tools;
const issuer = await listening((request, response) => answer(request, response));
const origin = await listening((request, response) => tools(request, response));
const resource = `${origin}/mcp`;

const provider = new Provider(issuer, {
  cookies: { keys: ['of a test'] },
  features: {
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: () => ({ scope: 'mcp', accessTokenFormat: 'opaque' }),
    },
  },
  scopes: ['openid', 'offline_access', 'mcp'],
  ttl: { AccessToken: lasts, Grant: 3600, Interaction: 600, RefreshToken: 3600, Session: 600 },
  rotateRefreshToken: true,
});
provider.on('access_token.saved', (token) => console.log(`access ${token.jti}`));
provider.on('refresh_token.saved', (token) => console.log(`refresh ${token.jti}`));
provider.on('grant.revoked', () => console.log('revoked'));
answer = provider.callback();

const said = (response, status, body, headers = {}) => {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(body && JSON.stringify(body));
};

const results = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: 'secret', version: '1' },
  }),
  'tools/list': () => ({ tools: [{ name: 'word', inputSchema: { type: 'object' } }] }),
  'tools/call': (_, token) => ({ content: [{ type: 'text', text: `xyzzy ${token}` }] }),
};

tools = async (request, response) => {
  if (request.url.startsWith('/.well-known/oauth-protected-resource')) {
    return said(response, 200, {
      resource,
      authorization_servers: [issuer],
      scopes_supported: ['mcp'],
    });
  }
  const token = (request.headers.authorization ?? '').replace('Bearer ', '');
  const found = await provider.AccessToken.find(token);
  if (!found || found.isExpired || found.aud !== resource) {
    const where = `${origin}/.well-known/oauth-protected-resource/mcp`;
    return said(response, 401, undefined, {
      'www-authenticate': `Bearer resource_metadata="${where}"`,
    });
  }
  if (request.method !== 'POST') return said(response, 405);
  let text = '';
  for await (const piece of request) text += piece;
  const { id, method, params } = JSON.parse(text);
  if (id === undefined) return said(response, 202);
  const result = results[method]?.(params, token);
  const error = { code: -32601, message: 'unknown' };
  return said(response, 200, { jsonrpc: '2.0', id, ...(result ? { result } : { error }) });
};

console.log(resource);
