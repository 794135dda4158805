// Draws the contract of this gateway. Everything that would reach another host
// is switched off.
Scalar.createApiReference('#reference', {
  url: '/openapi.yaml',
  title: 'Countersign API',
  withDefaultFonts: false,
  telemetry: false,
  agent: { disabled: true },
  mcp: { disabled: true },
  showDeveloperTools: 'never',
  hideClientButton: true,
  persistAuth: false,
  proxyUrl: '',
  defaultOpenAllTags: false,
  documentDownloadType: 'yaml',
})
